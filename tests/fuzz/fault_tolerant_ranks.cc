#include "tests/fuzz/fault_tolerant_ranks.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/assert.h"
#include "tests/fuzz/payload_model.h"
#include "wire/extension.h"
#include "wire/payload/sparse.h"

namespace sluice::fuzz {

using reducer::LaneCommand;
using reducer::LaneEvent;
using wire::FrameType;

FaultTolerantRanks::FaultTolerantRanks(FuzzedLane& fuzzed_lane, const reducer::SessionPlan& plan,
                                       uint8_t seed, bool small_buffers)
    : lane_(fuzzed_lane),
      plan_(plan),
      seed_(seed),
      small_buffers_(small_buffers),
      session_(std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan))),
      newest_{.version = plan.view_version, .view_hash = plan.view_hash, .base_chunk = 0} {
  for (uint32_t r = 0; r < plan.ranks; ++r) ranks_.emplace_back().view = newest_;
}

void FaultTolerantRanks::command(LaneCommand::Kind kind, uint32_t rank, int fd) {
  SLUICE_ASSERT(
      lane_.lane->command({.kind = kind, .session = session_.get(), .rank = rank, .socket = {.fd = fd}}));
}

void FaultTolerantRanks::settle() {
  lane_.settle();
  if (small_buffers_) return;
  for (uint32_t r = 0; r < count(); ++r) drain(r);
}

void FaultTolerantRanks::close_socket(Rank& r) {
  r.socket = transport::tcp::Socket();
  r.resumed = false;
  r.held_back.clear();
}

void FaultTolerantRanks::connect(uint32_t rank, bool newest) {
  Rank& r = ranks_[rank];
  const std::array<int, 2> fds = connected_sockets(small_buffers_);
  // The old connection stays open until the lane knows the new one.
  transport::tcp::Socket old = std::move(r.socket);
  close_socket(r);
  r.socket = transport::tcp::Socket(fds[0]);
  r.incoming.emplace(wire::kMaxPayload);
  r.may_close = failed_ || r.leave_sent;  // the lane may skip a rank that has left
  command(LaneCommand::Kind::kAttach, rank, fds[1]);
  lane_.settle();
  if (!r.committed) {
    r.committed = r.resumed = true;
    return send(rank, encode(control_frame(wire::Commit{.incarnation = kIncarnation}, plan_.handle)));
  }
  if (newest && r.view.version != newest_.version) {
    r.view = newest_;
    r.next = r.held = r.sent = 0;
    r.left = false;
  }
  send(rank, encode(resume_frame(r)));
}

FrameParts FaultTolerantRanks::resume_frame(const Rank& r) const {
  return control_frame(wire::Resume{.incarnation = kIncarnation,
                                    .version = r.view.version,
                                    .view_hash = r.view.view_hash,
                                    .base_chunk = r.view.base_chunk,
                                    .results_held = r.held},
                       plan_.handle);
}

void FaultTolerantRanks::send(uint32_t rank, const Bytes& frame, size_t hold_back) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid()) return;
  Bytes& all = r.held_back;
  all.insert(all.end(), frame.begin(), frame.end());
  const size_t size = all.size() - std::min(hold_back, all.size());
  if (size == 0) return;
  const ssize_t sent = ::send(r.socket.fd(), all.data(), size, MSG_NOSIGNAL);
  SLUICE_ASSERT(sent == static_cast<ssize_t>(size) || r.may_close || altered_);
  all.erase(all.begin(), all.begin() + static_cast<long>(size));
  settle();
}

bool FaultTolerantRanks::may_contribute(const Rank& r) const {
  return r.socket.valid() && r.resumed && !r.left && r.next < r.held + plan_.slots &&
         (!left_ || r.view.base_chunk + r.next < chunks_);
}

void FaultTolerantRanks::contribute(uint32_t rank, size_t hold_back) {
  Rank& r = ranks_[rank];
  if (!may_contribute(r)) return;
  const Bytes frame = encode(contribution(rank));
  chunks_ = std::max(chunks_, r.view.base_chunk + r.next + 1);
  ++r.next;
  r.sent = std::max(r.sent, r.next);
  send(rank, frame, hold_back % frame.size());
}

// The base is the smallest first unfinished chunk of all ranks. Results in transit can only increase it.
void FaultTolerantRanks::next_view() {
  uint64_t base = ~uint64_t{0};
  for (const Rank& r : ranks_) base = std::min(base, r.first_unfinished);
  ++newest_.version;
  newest_.view_hash = newest_.view_hash * 6364136223846793005 + 1;
  newest_.base_chunk = base;
}

void FaultTolerantRanks::follow(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid() || !r.resumed || r.view.version == newest_.version) return;
  r.view = newest_;
  r.next = r.held = r.sent = 0;
  r.left = false;
  send(rank, encode(control_frame(newest_, plan_.handle)));
}

void FaultTolerantRanks::cut(uint32_t rank) {
  close_socket(ranks_[rank]);
  settle();
}

void FaultTolerantRanks::close_rank(uint32_t rank) {
  ranks_[rank].may_close = true;
  command(LaneCommand::Kind::kCloseRank, rank);
  settle();
}

void FaultTolerantRanks::leave(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (!r.resumed || r.left || r.view.version != newest_.version) return;
  if (r.view.base_chunk + r.held < chunks_) return;
  r.left = r.leave_sent = left_ = true;
  command(LaneCommand::Kind::kRankLeft, rank);
  settle();
}

void FaultTolerantRanks::send_garbage(uint32_t rank, Bytes bytes) {
  Rank& r = ranks_[rank];
  if (bytes.empty() || !r.socket.valid() || r.bad_frames == kMaxBadFrames) return;
  bytes[0] = std::byte{0};  // no frame starts with 0, and within a frame it breaks the CRC
  ++r.bad_frames;
  r.may_close = true;
  send(rank, bytes);
}

void FaultTolerantRanks::send_altered(uint32_t rank, unsigned choice, Input& in) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid()) return;
  altered_ = true;
  wire::ViewCommit view = newest_;
  view.version = static_cast<uint16_t>(view.version + in.u8() % 3);
  switch (choice % 3) {
    case 0: return send(rank, encode_altered(contribution(rank), in));
    case 1: return send(rank, encode_altered(control_frame(view, plan_.handle), in));
    default: return send(rank, encode_altered(resume_frame(r), in));
  }
}

void FaultTolerantRanks::time_passed() {
  for (Rank& r : ranks_) r.may_close |= !r.held_back.empty();
  settle();
}

FrameParts FaultTolerantRanks::contribution(uint32_t rank) const {
  const Rank& r = ranks_[rank];
  const uint64_t chunk = r.view.base_chunk + r.next;
  FrameParts parts = operation_data(rank, chunk);
  wire::FrameHeader& h = parts.header;
  if (r.view.version != 0 && chunk < r.first_unfinished) {
    h.flags |= wire::kFlagKept | wire::kFlagResent;
    parts.payload = result(chunk);
  }
  h.view_version = r.view.version;
  h.view_hash = static_cast<uint32_t>(r.view.view_hash);
  h.sequence = r.next;
  h.slot = static_cast<uint16_t>(r.next % plan_.slots);
  if ((chunk + rank + r.view.version) % 2 == 0) make_sparse_if_shorter(parts);
  return parts;
}

// The contribution of a rank to a chunk. The chunk determines the fields, chunk and rank the payload.
FrameParts FaultTolerantRanks::operation_data(uint32_t rank, uint64_t chunk) const {
  const uint64_t random_bits = (chunk + 1) * 0x9e3779b97f4a7c15 + seed_ * 0xbf58476d1ce4e5b9;
  FrameParts parts = contribution_frame(plan_.handle, random_bits);
  parts.header.chunk = chunk;
  parts.header.op_id = static_cast<uint32_t>(chunk / 3);
  // Some results exceed a small socket buffer, so that the lane must wait.
  const size_t drawn = (random_bits >> 51) % 2 == 0 ? 1 + (random_bits >> 52) % 60 : 1000;
  const size_t count = std::min(drawn, most_elements(parts.header.wire_dtype, plan_.slot_bytes));
  set_elements(parts, count, random_bits, rank);
  return parts;
}

Bytes FaultTolerantRanks::result(uint64_t chunk) const {
  std::vector<FrameParts> all;
  std::vector<const std::byte*> payloads;
  for (uint32_t r = 0; r < count(); ++r) all.push_back(operation_data(r, chunk));
  for (const FrameParts& p : all) payloads.push_back(p.payload.data());
  return sum_in_order(all[0].header, payloads, plan_.order);
}

void FaultTolerantRanks::drain(uint32_t rank) {
  Rank& r = ranks_[rank];
  std::array<std::byte, 16 * kKiB> buffer;
  while (r.socket.valid()) {
    const ssize_t n = ::recv(r.socket.fd(), buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      SLUICE_ASSERT(r.may_close || altered_ || ending_);
      return close_socket(r);
    }
    r.incoming->append(std::span(buffer).first(static_cast<size_t>(n)));
    for (;;) {
      const auto step = r.incoming->next();
      if (step.kind == StreamModel::Step::Kind::kNothing) break;
      SLUICE_ASSERT(step.kind != StreamModel::Step::Kind::kViolation);
      if (step.kind == StreamModel::Step::Kind::kFrame) on_frame(r, step);
    }
    lane_.settle();
  }
}

void FaultTolerantRanks::on_frame(Rank& r, const StreamModel::Step& step) {
  switch (step.header.type) {
    case FrameType::kResult: return on_result(r, step);
    case FrameType::kAbort: SLUICE_ASSERT(ending_); return;
    case FrameType::kResumeAck: {
      wire::ResumeAck ack;
      SLUICE_ASSERT(wire::decode_body(step.payload, ack).ok());
      if (altered_) {
        r.next = ack.contributions_held;
      } else {
        SLUICE_ASSERT(!r.resumed && ack.contributions_held >= r.held && ack.contributions_held <= r.sent);
        r.next = ack.contributions_held;
      }
      r.resumed = true;
      return;
    }
    default: SLUICE_ASSERT(false);
  }
}

void FaultTolerantRanks::on_result(Rank& r, const StreamModel::Step& step) {
  const wire::FrameHeader& h = step.header;
  if (altered_) {
    ++r.held;
    return;
  }
  check_payload(step);
  if (h.chunk == r.first_unfinished) ++r.first_unfinished;
  if (h.view_version != r.view.version) {  // was in transit when the rank changed its view
    SLUICE_ASSERT(h.view_version < r.view.version);
    return;
  }
  SLUICE_ASSERT(r.resumed && h.view_hash == static_cast<uint32_t>(r.view.view_hash));
  SLUICE_ASSERT(h.sequence == r.held && h.chunk == r.view.base_chunk + r.held && r.held < r.next);
  ++r.held;
}

// The result travels as it is, or without its zero blocks if all ranks accept that and it pays.
void FaultTolerantRanks::check_payload(const StreamModel::Step& step) const {
  const wire::FrameHeader& h = step.header;
  const Bytes expected = result(h.chunk);
  const bool sparse = h.encoding == wire::Encoding::kSparse;
  const auto expanded = wire::find_expanded(step.extensions);
  SLUICE_ASSERT(expanded.has_value() == sparse);
  if (sparse) {
    SLUICE_ASSERT(expanded->bytes == expected.size());
    SLUICE_ASSERT(step.payload == sparse_payload(expected, h.wire_dtype));
  } else {
    SLUICE_ASSERT(step.payload == expected);
  }
  bool all_accept = true;
  for (uint32_t r = 0; r < count(); ++r)
    all_accept &= (operation_data(r, h.chunk).header.flags & wire::kFlagAcceptsSparse) != 0;
  if (left_) return;  // a chunk may have completed without the ranks that left
  SLUICE_ASSERT(sparse == (all_accept && wire::sparse_length(expected, h.wire_dtype) != 0));
}

void FaultTolerantRanks::process_events() {
  for (LaneEvent e; lane_.lane->poll_event(e);) {
    SLUICE_ASSERT(e.session == session_.get() && !released_);
    if (e.kind == LaneEvent::Kind::kFailed) {
      // A rank that left and does not return may have been the only one with a result.
      SLUICE_ASSERT(!failed_ && (altered_ || (left_ && e.code == Errc::kRankLeft)));
      failed_ = true;
      for (Rank& r : ranks_) r.may_close = true;
    }
    SLUICE_ASSERT(e.kind != LaneEvent::Kind::kTooManyBadFrames || altered_);
    if (e.kind == LaneEvent::Kind::kReleased) released_ = true;
  }
}

void FaultTolerantRanks::recover() {
  for (uint64_t turn = 0; turn < 8 * chunks_ + 64; ++turn) {
    bool all = true;
    for (uint32_t rank = 0; rank < count(); ++rank) {
      Rank& r = ranks_[rank];
      if (!r.socket.valid() || !r.resumed) connect(rank, true);
      send(rank, {});  // the held-back bytes
      drain(rank);
      follow(rank);
      while (may_contribute(r) && r.view.base_chunk + r.next < chunks_) contribute(rank);
      drain(rank);
      process_events();
      if (failed_ || altered_) return;
      all &= r.first_unfinished >= chunks_;
    }
    if (all) return;
  }
  SLUICE_ASSERT(false);
}

void FaultTolerantRanks::finish() {
  ending_ = true;
  session_->set_end_message(wire::encode_body(wire::Abort{}));
  command(LaneCommand::Kind::kEnd, 0);
  settle();
  for (Rank& r : ranks_) close_socket(r);
  settle();
  process_events();
  SLUICE_ASSERT(released_);
}

}  // namespace sluice::fuzz
