#include "tests/fuzz/surviving_ranks.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/assert.h"

namespace sluice::fuzz {

using reducer::LaneCommand;
using reducer::LaneEvent;
using wire::FrameType;

namespace {

template <typename M>
FrameParts control(const M& message, uint32_t session) {
  FrameParts parts;
  parts.header.type = M::kType;
  parts.header.flags = wire::kFlagPayloadCrc;
  parts.header.session = session;
  parts.payload = wire::encode_body(message);
  return parts;
}

}  // namespace

SurvivingRanks::SurvivingRanks(LaneBed& bed, const reducer::SessionPlan& plan, uint8_t seed,
                               bool small_buffers)
    : bed_(bed),
      plan_(plan),
      seed_(seed),
      small_buffers_(small_buffers),
      session_(std::make_unique<reducer::LaneSession>(plan, *reducer::SlotArena::map(plan))),
      newest_{.version = plan.view_version, .view_hash = plan.view_hash, .base_chunk = 0} {
  for (uint32_t r = 0; r < plan.ranks; ++r) ranks_.emplace_back().view = newest_;
}

void SurvivingRanks::command(LaneCommand::Kind kind, uint32_t rank, int fd) {
  SLUICE_ASSERT(
      bed_.lane->command({.kind = kind, .session = session_.get(), .rank = rank, .socket = {.fd = fd}}));
}

void SurvivingRanks::settle() {
  bed_.settle();
  if (small_buffers_) return;
  for (uint32_t r = 0; r < count(); ++r) drain(r);
}

void SurvivingRanks::give_up(Rank& r) {
  r.socket = transport::tcp::Socket();
  r.resumed = false;
  r.held_back.clear();
}

void SurvivingRanks::connect(uint32_t rank, bool newest) {
  Rank& r = ranks_[rank];
  std::array<int, 2> fds{};
  SLUICE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) == 0);
  if (small_buffers_) {
    const int least = 1;  // the kernel takes its own minimum
    ::setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }
  // The old connection stays as it is: the lane hears of the new one first, or never misses the old.
  transport::tcp::Socket old = std::move(r.socket);
  give_up(r);
  r.socket = transport::tcp::Socket(fds[0]);
  r.incoming.emplace(wire::kMaxPayload);
  r.may_close = failed_ || r.said_leave;  // one that has left may be passed over
  command(LaneCommand::Kind::kAttach, rank, fds[1]);
  bed_.settle();
  if (!r.committed) {
    r.committed = r.resumed = true;
    return send(rank, encode(control(wire::Commit{.incarnation = kIncarnation}, plan_.handle)));
  }
  if (newest && r.view.version != newest_.version) {
    r.view = newest_;
    r.next = r.held = r.sent = 0;
    r.left = false;
  }
  send(rank, encode(resume_frame(r)));
}

FrameParts SurvivingRanks::resume_frame(const Rank& r) const {
  return control(wire::Resume{.incarnation = kIncarnation,
                              .version = r.view.version,
                              .view_hash = r.view.view_hash,
                              .base_chunk = r.view.base_chunk,
                              .results_held = r.held},
                 plan_.handle);
}

void SurvivingRanks::send(uint32_t rank, const Bytes& frame, size_t hold_back) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid()) return;
  Bytes& all = r.held_back;
  all.insert(all.end(), frame.begin(), frame.end());
  const size_t size = all.size() - std::min(hold_back, all.size());
  if (size == 0) return;
  const ssize_t sent = ::send(r.socket.fd(), all.data(), size, MSG_NOSIGNAL);
  SLUICE_ASSERT(sent == static_cast<ssize_t>(size) || r.may_close || tainted_);
  all.erase(all.begin(), all.begin() + static_cast<long>(size));
  settle();
}

bool SurvivingRanks::may_contribute(const Rank& r) const {
  return r.socket.valid() && r.resumed && !r.left && r.next < r.held + plan_.slots &&
         (!left_ || r.view.base_chunk + r.next < chunks_);
}

void SurvivingRanks::contribute(uint32_t rank, size_t hold_back) {
  Rank& r = ranks_[rank];
  if (!may_contribute(r)) return;
  const Bytes frame = encode(contribution(rank));
  chunks_ = std::max(chunks_, r.view.base_chunk + r.next + 1);
  ++r.next;
  r.sent = std::max(r.sent, r.next);
  send(rank, frame, hold_back % frame.size());
}

// The base is the least that all ranks could answer; what is under way to them only makes them know more.
void SurvivingRanks::next_view() {
  uint64_t base = ~uint64_t{0};
  for (const Rank& r : ranks_) base = std::min(base, r.first_unfinished);
  ++newest_.version;
  newest_.view_hash = newest_.view_hash * 6364136223846793005 + 1;
  newest_.base_chunk = base;
}

void SurvivingRanks::follow(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid() || !r.resumed || r.view.version == newest_.version) return;
  r.view = newest_;
  r.next = r.held = r.sent = 0;
  r.left = false;
  send(rank, encode(control(newest_, plan_.handle)));
}

void SurvivingRanks::cut(uint32_t rank) {
  give_up(ranks_[rank]);
  settle();
}

void SurvivingRanks::close_rank(uint32_t rank) {
  ranks_[rank].may_close = true;
  command(LaneCommand::Kind::kCloseRank, rank);
  settle();
}

void SurvivingRanks::leave(uint32_t rank) {
  Rank& r = ranks_[rank];
  if (!r.resumed || r.left || r.view.version != newest_.version) return;
  if (r.view.base_chunk + r.held < chunks_) return;
  r.left = r.said_leave = left_ = true;
  command(LaneCommand::Kind::kRankLeft, rank);
  settle();
}

void SurvivingRanks::send_garbage(uint32_t rank, Bytes bytes) {
  Rank& r = ranks_[rank];
  if (bytes.empty() || !r.socket.valid() || r.bad_frames == kMostBadFrames) return;
  bytes[0] = std::byte{0};  // no frame begins so, and no checksum stays right within one but by its own bytes
  ++r.bad_frames;
  r.may_close = true;
  send(rank, bytes);
}

void SurvivingRanks::send_altered(uint32_t rank, unsigned what, Input& in) {
  Rank& r = ranks_[rank];
  if (!r.socket.valid()) return;
  tainted_ = true;
  wire::ViewCommit view = newest_;
  view.version = static_cast<uint16_t>(view.version + in.u8() % 3);
  switch (what % 3) {
    case 0: return send(rank, encode_altered(contribution(rank), in));
    case 1: return send(rank, encode_altered(control(view, plan_.handle), in));
    default: return send(rank, encode_altered(resume_frame(r), in));
  }
}

void SurvivingRanks::time_passed() {
  for (Rank& r : ranks_) r.may_close |= !r.held_back.empty();
  settle();
}

FrameParts SurvivingRanks::contribution(uint32_t rank) const {
  const Rank& r = ranks_[rank];
  const uint64_t chunk = r.view.base_chunk + r.next;
  FrameParts parts = draw(rank, chunk);
  wire::FrameHeader& h = parts.header;
  if (r.view.version != 0 && chunk < r.first_unfinished) {
    h.flags |= wire::kFlagKept | wire::kFlagResent;
    parts.payload = result(chunk);
  }
  h.view_version = r.view.version;
  h.view_hash = static_cast<uint32_t>(r.view.view_hash);
  h.sequence = r.next;
  h.slot = static_cast<uint16_t>(r.next % plan_.slots);
  return parts;
}

// What the ranks have for a chunk, computed from its number and, the payload, from the rank.
FrameParts SurvivingRanks::draw(uint32_t rank, uint64_t chunk) const {
  const uint64_t drawn = (chunk + 1) * 0x9e3779b97f4a7c15 + seed_ * 0xbf58476d1ce4e5b9;
  FrameParts parts;
  wire::FrameHeader& h = parts.header;
  h.type = FrameType::kContribution;
  h.flags = wire::kFlagPayloadCrc;
  h.session = plan_.handle;
  h.kind = wire::Kind::kAllreduce;
  h.chunk = chunk;
  h.op_id = static_cast<uint32_t>(chunk / 3);
  h.wire_dtype = h.result_dtype = static_cast<wire::DType>((drawn >> 32) % wire::kDTypeCount);
  h.acc_dtype = wire::accumulator_of(h.wire_dtype);
  h.op = static_cast<wire::Op>((drawn >> 40) % wire::kOpCount);
  // Some fill more than a small buffer between them, so that the lane must wait with what follows.
  const size_t count = (drawn >> 51) % 2 == 0 ? 1 + (drawn >> 52) % 60 : 1000;
  h.fingerprint = wire::fingerprint(count, h.wire_dtype, h.op, h.kind);
  parts.payload.resize(count * wire::size_of(h.wire_dtype));
  h.length = static_cast<uint32_t>(parts.payload.size());
  uint64_t state = drawn ^ rank;
  for (std::byte& b : parts.payload) {
    state = state * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(state >> 56);
  }
  return parts;
}

Bytes SurvivingRanks::result(uint64_t chunk) const {
  std::vector<FrameParts> all;
  std::vector<const std::byte*> payloads;
  for (uint32_t r = 0; r < count(); ++r) all.push_back(draw(r, chunk));
  for (const FrameParts& p : all) payloads.push_back(p.payload.data());
  return sum_in_order(all[0].header, payloads);
}

void SurvivingRanks::drain(uint32_t rank) {
  Rank& r = ranks_[rank];
  std::array<std::byte, 16 * kKiB> piece;
  while (r.socket.valid()) {
    const ssize_t n = ::recv(r.socket.fd(), piece.data(), piece.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      SLUICE_ASSERT(r.may_close || tainted_ || ending_);
      return give_up(r);
    }
    r.incoming->append(std::span(piece).first(static_cast<size_t>(n)));
    for (;;) {
      const auto step = r.incoming->next();
      if (step.kind == StreamModel::Step::Kind::kNothing) break;
      SLUICE_ASSERT(step.kind != StreamModel::Step::Kind::kBreach);
      if (step.kind == StreamModel::Step::Kind::kFrame) arrived(r, step);
    }
    bed_.settle();
  }
}

void SurvivingRanks::arrived(Rank& r, const StreamModel::Step& step) {
  switch (step.header.type) {
    case FrameType::kResult: return result_arrived(r, step);
    case FrameType::kAbort: SLUICE_ASSERT(ending_); return;
    case FrameType::kResumeAck: {
      wire::ResumeAck ack;
      SLUICE_ASSERT(wire::decode_body(step.payload, ack).ok());
      if (tainted_) {
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

void SurvivingRanks::result_arrived(Rank& r, const StreamModel::Step& step) {
  const wire::FrameHeader& h = step.header;
  if (tainted_) {
    ++r.held;
    return;
  }
  SLUICE_ASSERT(step.payload == result(h.chunk));
  if (h.chunk == r.first_unfinished) ++r.first_unfinished;
  if (h.view_version != r.view.version) {  // was under way when the rank followed
    SLUICE_ASSERT(h.view_version < r.view.version);
    return;
  }
  SLUICE_ASSERT(r.resumed && h.view_hash == static_cast<uint32_t>(r.view.view_hash));
  SLUICE_ASSERT(h.sequence == r.held && h.chunk == r.view.base_chunk + r.held && r.held < r.next);
  ++r.held;
}

void SurvivingRanks::take_events() {
  for (LaneEvent e; bed_.lane->poll_event(e);) {
    SLUICE_ASSERT(e.session == session_.get() && !released_);
    if (e.kind == LaneEvent::Kind::kFailed) {
      // A rank that left and does not come back may have been the only one with a result.
      SLUICE_ASSERT(!failed_ && (tainted_ || (left_ && e.code == Errc::kRankLeft)));
      failed_ = true;
      for (Rank& r : ranks_) r.may_close = true;
    }
    SLUICE_ASSERT(e.kind != LaneEvent::Kind::kUnfit || tainted_);
    if (e.kind == LaneEvent::Kind::kReleased) released_ = true;
  }
}

void SurvivingRanks::recover() {
  for (uint64_t turn = 0; turn < 8 * chunks_ + 64; ++turn) {
    bool all = true;
    for (uint32_t rank = 0; rank < count(); ++rank) {
      Rank& r = ranks_[rank];
      if (!r.socket.valid() || !r.resumed) connect(rank, true);
      send(rank, {});  // the rest of what came in part
      drain(rank);
      follow(rank);
      while (may_contribute(r) && r.view.base_chunk + r.next < chunks_) contribute(rank);
      drain(rank);
      take_events();
      if (failed_ || tainted_) return;
      all &= r.first_unfinished >= chunks_;
    }
    if (all) return;
  }
  SLUICE_ASSERT(false);
}

void SurvivingRanks::finish() {
  ending_ = true;
  session_->set_ending(wire::encode_body(wire::Abort{}));
  command(LaneCommand::Kind::kEnd, 0);
  settle();
  for (Rank& r : ranks_) give_up(r);
  settle();
  take_events();
  SLUICE_ASSERT(released_);
}

}  // namespace sluice::fuzz
