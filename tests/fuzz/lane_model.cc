#include "tests/fuzz/lane_model.h"

#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "reducer/kernels/scalar_reference.h"
#include "tests/fuzz/payload_model.h"
#include "wire/messages.h"
#include "wire/payload/sparse.h"

namespace sluice::fuzz {

using Kind = StreamModel::Step::Kind;
using wire::FrameHeader;
using wire::FrameType;

LaneModel::LaneModel(const reducer::SessionPlan& plan) : plan_(plan) {
  for (uint32_t r = 0; r < plan.ranks; ++r) connections_.emplace_back(plan.slot_bytes);
}

void LaneModel::attach(uint32_t rank) {
  connections_[rank].attached = true;
}

void LaneModel::attach_failed(uint32_t rank) {
  connections_[rank].closed = {Errc::kSystem};
}

void LaneModel::fail(Errc code, uint32_t rank) {
  if (!failure_) failure_ = {code, rank};
}

void LaneModel::receive(uint32_t rank, std::span<const std::byte> bytes, Nanos now) {
  Connection& connection = connections_[rank];
  if (!connection.open() || bytes.empty()) return;
  connection.last_received = now;
  connection.stream.append(bytes);
  const uint64_t credit = connection.results_owed + plan_.slots;
  for (;;) {
    const StreamModel::Step step = connection.stream.next();
    if (step.kind == Kind::kNothing) break;
    Status status = step.violation;
    if (step.kind == Kind::kHeader) status = admit(rank, step, credit);
    if (step.kind == Kind::kFrame) status = frame(rank, step, now);
    if (status.ok()) continue;
    connection.closed = {status.code()};
    break;
  }
  fold();
}

Status LaneModel::admit(uint32_t rank, const StreamModel::Step& step, uint64_t credit) const {
  const Connection& connection = connections_[rank];
  const FrameHeader& h = step.header;
  if (h.type == FrameType::kCommit && !connection.committed)
    return h.length <= 16 ? Errc::kOk : Errc::kBadLength;
  if (h.type != FrameType::kContribution || !connection.committed || connection.left)
    return Errc::kUnexpectedMessage;
  if (h.session != plan_.handle) return Errc::kBadSession;
  if (h.view_version != plan_.view_version || h.view_hash != plan_.view_hash) return Errc::kBadView;
  if ((h.flags & wire::kFlagKept) != 0) return Errc::kBadField;  // these sessions are not fault-tolerant
  if (h.sequence != connection.next) return Errc::kBadSequence;
  if (h.slot != h.sequence % plan_.slots) return Errc::kBadSlot;
  if (h.sequence >= credit) return Errc::kSlotNotGranted;
  return admit_payload(rank, step);
}

// The number of bytes without encoding, and in kinds whose chunks have an owner, the number that each rank
// has.
Status LaneModel::admit_payload(uint32_t rank, const StreamModel::Step& step) const {
  const FrameHeader& h = step.header;
  const size_t element = wire::size_of(h.wire_dtype);
  size_t length = h.length;
  if (h.encoding == wire::Encoding::kSparse) {
    const auto expanded = wire::find_expanded(step.extensions);
    if (!expanded) return Errc::kBadExtension;
    length = expanded->bytes;
    if (length <= h.length || length % element != 0) return Errc::kBadLength;
  }
  size_t chunk = length;
  if (h.kind != wire::Kind::kAllreduce) {
    const auto owner = wire::find_owner(step.extensions);
    if (!owner) return Errc::kBadExtension;
    if (owner->owner >= plan_.ranks) return Errc::kBadField;
    chunk = owner->chunk_bytes;
    if (chunk == 0 || chunk % element != 0) return Errc::kBadLength;
    const bool owner_only = h.kind == wire::Kind::kAllGather || h.kind == wire::Kind::kBroadcast;
    if (length != (owner_only && owner->owner != rank ? 0 : chunk)) return Errc::kBadLength;
  }
  // Section 8: the chunk fits in a slot, and its partial sums in twice that.
  const size_t sums = chunk / element * wire::accumulated_size_of(h.wire_dtype);
  return chunk <= plan_.slot_bytes && sums <= size_t{2} * plan_.slot_bytes ? Errc::kOk : Errc::kBadLength;
}

Status LaneModel::frame(uint32_t rank, const StreamModel::Step& step, Nanos now) {
  if (step.header.type == FrameType::kContribution) {
    std::optional<Bytes> payload = step.payload;
    if (step.header.encoding == wire::Encoding::kSparse) {
      const size_t expanded = wire::find_expanded(step.extensions)->bytes;
      payload = expand_payload(step.payload, expanded, step.header.wire_dtype);
    }
    if (!payload || !has_valid_elements(*payload, step.header.wire_dtype)) return Errc::kBadField;
    on_contribution(rank, step, *payload, now);
    return Errc::kOk;
  }
  if (step.payload.size() != 8) return Errc::kBadLength;
  const auto incarnation = load_le<uint64_t>(step.payload.data());
  if (incarnation == 0 || (incarnation_ != 0 && incarnation != incarnation_)) return Errc::kBadField;
  incarnation_ = incarnation;
  connections_[rank].committed = true;
  return Errc::kOk;
}

void LaneModel::on_contribution(uint32_t rank, const StreamModel::Step& step, const Bytes& payload,
                                Nanos now) {
  FrameHeader h = step.header;
  connections_[rank].next = h.sequence + 1;
  if (failure_ || ending_) return;
  losses_ |= (h.flags & wire::kFlagLosses) != 0;
  for (uint32_t other = 0; other < plan_.ranks; ++other) {
    if (connections_[other].left && connections_[other].next <= h.sequence)
      return fail(Errc::kRankLeft, other);
  }
  h.encoding = wire::Encoding::kPlain;
  h.length = static_cast<uint32_t>(payload.size());
  uint32_t owner = wire::kNoRank;
  if (h.kind != wire::Kind::kAllreduce) {
    const auto info = wire::find_owner(step.extensions);
    owner = info->owner;
    h.length = info->chunk_bytes;
  }
  auto [at, begun] = chunks_.try_emplace(h.sequence);
  Chunk& chunk = at->second;
  if (begun) {
    chunk.reference = h;
    chunk.owner = owner;
    chunk.first_arrival = now;
  }
  const FrameHeader& r = chunk.reference;
  const bool agree = h.chunk == r.chunk && h.op_id == r.op_id && h.kind == r.kind &&
                     h.wire_dtype == r.wire_dtype && h.acc_dtype == r.acc_dtype &&
                     h.result_dtype == r.result_dtype && h.op == r.op && h.length == r.length &&
                     h.fingerprint == r.fingerprint && owner == chunk.owner;
  if (!agree) return fail(Errc::kMismatch, rank);
  chunk.accepts_sparse &= (h.flags & wire::kFlagAcceptsSparse) != 0;
  chunk.last_arrival = now;
  chunk.last_rank = rank;
  chunk.payloads[rank] = payload;
}

void LaneModel::fold() {
  while (!failure_ && !ending_) {
    const auto at = chunks_.find(next_result_);
    if (at == chunks_.end() || at->second.payloads.size() < plan_.ranks) return;
    const Chunk& chunk = at->second;
    const ExpectedResult full = result(chunk, std::exchange(losses_, false));
    ExpectedResult empty{.header = full.header, .info = full.info};
    empty.header.flags &= wire::kFlagLosses;
    empty.header.length = empty.header.payload_crc = 0;
    empty.header.encoding = wire::Encoding::kPlain;
    empty.header.ext_len8 = wire::kSmallExtensionBytes / 8;
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      Connection& connection = connections_[rank];
      if (!connection.open()) continue;
      ++connection.results_owed;
      const bool receives = wire::receives(chunk.reference.kind, chunk.owner, rank);
      connection.expected_results.push_back(receives ? full : empty);
    }
    chunks_.erase(at);
    ++next_result_;
  }
}

ExpectedResult LaneModel::result(const Chunk& chunk, bool losses) const {
  ExpectedResult result{.header = chunk.reference, .payload = sum(chunk)};
  FrameHeader& h = result.header;
  h.type = FrameType::kResult;
  h.ext_len8 = wire::kSmallExtensionBytes / 8;
  // Whether zero blocks are left out is the sender's choice.
  if (chunk.accepts_sparse && wire::sparse_length(result.payload, h.wire_dtype) != 0) {
    h.encoding = wire::Encoding::kSparse;
    h.ext_len8 = 2 * wire::kSmallExtensionBytes / 8;
    result.expanded = {.bytes = h.length};
    result.payload = sparse_payload(result.payload, h.wire_dtype);
    h.length = static_cast<uint32_t>(result.payload.size());
  }
  h.flags = plan_.payload_crc ? wire::kFlagPayloadCrc : uint16_t{0};
  if (losses) h.flags |= wire::kFlagLosses;
  h.payload_crc = plan_.payload_crc ? crc32c(result.payload) : 0;
  const Nanos lag = (chunk.last_arrival - chunk.first_arrival) / kMicrosecond;
  result.info = {.last_rank = chunk.last_rank,
                 .lag_us = static_cast<uint32_t>(std::min<Nanos>(lag, 0xffffffff))};
  return result;
}

Bytes LaneModel::sum(const Chunk& chunk) const {
  if (wire::copies(chunk.reference.kind)) return chunk.payloads.at(chunk.owner);
  std::vector<const std::byte*> payloads;
  for (const auto& [rank, payload] : chunk.payloads) payloads.push_back(payload.data());
  return sum_in_order(chunk.reference, payloads, plan_.order);
}

Bytes sum_in_order(const FrameHeader& h, std::span<const std::byte* const> payloads, wire::SumOrder order) {
  constexpr size_t kGroup = 8;
  const size_t count = h.length / wire::size_of(h.wire_dtype);
  const auto fold = [&](kernels::Stage stage, std::span<const std::byte* const> sources, Bytes& out) {
    kernels::reference_fold(h.wire_dtype, h.op, stage, order, sources, count,
                            static_cast<uint32_t>(payloads.size()), out.data());
  };
  const bool whole = order == wire::SumOrder::kTree || payloads.size() <= kGroup;
  std::vector<Bytes> groups;
  for (size_t first = 0; first < payloads.size(); first += kGroup) {
    groups.emplace_back(count *
                        (whole ? wire::size_of(h.wire_dtype) : wire::accumulated_size_of(h.wire_dtype)));
    fold(whole ? kernels::Stage::kWhole : kernels::Stage::kPartial,
         whole ? payloads : payloads.subspan(first, std::min(kGroup, payloads.size() - first)),
         groups.back());
    if (whole) return groups[0];
  }
  std::vector<const std::byte*> sources;
  for (const Bytes& g : groups) sources.push_back(g.data());
  Bytes out(h.length);
  fold(kernels::Stage::kFinish, sources, out);
  return out;
}

void LaneModel::sending_ended(uint32_t rank, bool unread) {
  Connection& connection = connections_[rank];
  if (!connection.open()) return;
  if (connection.stream.within_frame()) {
    connection.closed = {Errc::kReset};
  } else if (unread) {
    connection.closed = {Errc::kClosed, Errc::kReset, Errc::kTimeout};
    connection.closes_after_sending = true;
  } else {
    connection.closed = {Errc::kClosed};
  }
}

void LaneModel::connection_closed(uint32_t rank) {
  Connection& connection = connections_[rank];
  if (connection.open()) connection.closed = {Errc::kClosed, Errc::kReset};
}

void LaneModel::rank_left(uint32_t rank) {
  Connection& connection = connections_[rank];
  if (connection.left) return;
  connection.left = true;
  const bool others_ahead =
      std::ranges::any_of(connections_, [&](const Connection& o) { return o.next > connection.next; });
  if (others_ahead) fail(Errc::kRankLeft, rank);
}

void LaneModel::close_now() {
  for (Connection& connection : connections_) {
    if (ending_ && connection.open()) connection.closed = {Errc::kAborted};
    if (ending_ && connection.closes_after_sending) connection.closed.push_back(Errc::kAborted);
  }
}

void LaneModel::pass_time(Nanos now, Nanos frame_timeout) {
  for (Connection& connection : connections_) {
    if (connection.open() && connection.stream.within_frame() &&
        now - connection.last_received > frame_timeout)
      connection.closed = {Errc::kTimeout};
  }
}

std::vector<uint32_t> LaneModel::missing() const {
  std::vector<uint32_t> out;
  if (!chunks_.contains(next_result_)) return out;
  for (uint32_t r = 0; r < plan_.ranks; ++r) {
    if (connections_[r].next <= next_result_) out.push_back(r);
  }
  return out;
}

}  // namespace sluice::fuzz
