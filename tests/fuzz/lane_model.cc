#include "tests/fuzz/lane_model.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "reducer/kernels/scalar_reference.h"
#include "wire/messages.h"

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
    if (step.kind == Kind::kHeader) status = admit(connection, step.header, credit);
    if (step.kind == Kind::kFrame) status = frame(rank, step, now);
    if (status.ok()) continue;
    connection.closed = {status.code()};
    break;
  }
  fold();
}

Status LaneModel::admit(const Connection& connection, const FrameHeader& h, uint64_t credit) const {
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
  const bool fp8 = h.wire_dtype == wire::DType::kF8e4m3 || h.wire_dtype == wire::DType::kF8e5m2;
  if (h.length > (fp8 ? plan_.slot_bytes / 2 : plan_.slot_bytes)) return Errc::kBadLength;  // section 8
  return Errc::kOk;
}

Status LaneModel::frame(uint32_t rank, const StreamModel::Step& step, Nanos now) {
  if (step.header.type == FrameType::kContribution) {
    on_contribution(rank, step, now);
    return Errc::kOk;
  }
  if (step.payload.size() != 8) return Errc::kBadLength;
  const auto incarnation = load_le<uint64_t>(step.payload.data());
  if (incarnation == 0 || (incarnation_ != 0 && incarnation != incarnation_)) return Errc::kBadField;
  incarnation_ = incarnation;
  connections_[rank].committed = true;
  return Errc::kOk;
}

void LaneModel::on_contribution(uint32_t rank, const StreamModel::Step& step, Nanos now) {
  const FrameHeader& h = step.header;
  connections_[rank].next = h.sequence + 1;
  if (failure_ || ending_) return;
  for (uint32_t other = 0; other < plan_.ranks; ++other) {
    if (connections_[other].left && connections_[other].next <= h.sequence)
      return fail(Errc::kRankLeft, other);
  }
  auto [at, begun] = chunks_.try_emplace(h.sequence);
  Chunk& chunk = at->second;
  if (begun) {
    chunk.reference = h;
    chunk.first_arrival = now;
  }
  const FrameHeader& r = chunk.reference;
  const bool agree = h.chunk == r.chunk && h.op_id == r.op_id && h.kind == r.kind &&
                     h.encoding == r.encoding && h.wire_dtype == r.wire_dtype && h.acc_dtype == r.acc_dtype &&
                     h.result_dtype == r.result_dtype && h.op == r.op && h.length == r.length &&
                     h.fingerprint == r.fingerprint;
  if (!agree) return fail(Errc::kMismatch, rank);
  chunk.last_arrival = now;
  chunk.last_rank = rank;
  chunk.payloads[rank] = step.payload;
}

void LaneModel::fold() {
  while (!failure_ && !ending_) {
    const auto at = chunks_.find(next_result_);
    if (at == chunks_.end() || at->second.payloads.size() < plan_.ranks) return;
    const Chunk& chunk = at->second;
    ExpectedResult result{.header = chunk.reference, .payload = sum(chunk)};
    result.header.type = FrameType::kResult;
    result.header.flags = plan_.payload_crc ? wire::kFlagPayloadCrc : uint16_t{0};
    result.header.payload_crc = plan_.payload_crc ? crc32c(result.payload) : 0;
    result.header.ext_len8 = wire::kSmallExtensionBytes / 8;
    const Nanos lag = (chunk.last_arrival - chunk.first_arrival) / kMicrosecond;
    result.info = {.last_rank = chunk.last_rank,
                   .lag_us = static_cast<uint32_t>(std::min<Nanos>(lag, 0xffffffff))};
    for (Connection& connection : connections_) {
      if (!connection.open()) continue;
      ++connection.results_owed;
      connection.expected_results.push_back(result);
    }
    chunks_.erase(at);
    ++next_result_;
  }
}

Bytes LaneModel::sum(const Chunk& chunk) const {
  std::vector<const std::byte*> payloads;
  for (const auto& [rank, payload] : chunk.payloads) payloads.push_back(payload.data());
  return sum_in_order(chunk.reference, payloads);
}

Bytes sum_in_order(const FrameHeader& h, std::span<const std::byte* const> payloads) {
  constexpr size_t kGroup = 8;
  const size_t count = h.length / wire::size_of(h.wire_dtype);
  const auto fold = [&](kernels::Stage stage, std::span<const std::byte* const> sources, Bytes& out) {
    kernels::reference_fold(h.wire_dtype, h.op, stage, sources, count, static_cast<uint32_t>(payloads.size()),
                            out.data());
  };
  const bool whole = payloads.size() <= kGroup;
  std::vector<Bytes> groups;
  for (size_t first = 0; first < payloads.size(); first += kGroup) {
    groups.emplace_back(count * wire::size_of(whole ? h.wire_dtype : h.acc_dtype));
    fold(whole ? kernels::Stage::kWhole : kernels::Stage::kPartial,
         payloads.subspan(first, std::min(kGroup, payloads.size() - first)), groups.back());
  }
  if (whole) return groups[0];
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
