// How a LocalSession ends: by a failure of this rank or of another one. The first reason counts.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/local/local_session.h"
#include "wire/dtype.h"

namespace sluice::local {
namespace {

constexpr Nanos kPatience = 200 * kMillisecond;

// What two ranks disagree on, of pieces that all ranks have arrived at.
const char* first_difference(const Announcement& a, const Announcement& b) {
  if (a.kind != b.kind) return "kind";
  if (a.dtype != b.dtype) return "dtype";
  if (a.op != b.op) return "op";
  if (a.op_id != b.op_id) return "op id";
  if (a.root != b.root) return "root";
  if (a.count != b.count) return "count";
  return a.counts_crc != b.counts_crc ? "counts" : "piece";
}

// Of another process's memory, so anything may be in it.
std::string describe(const std::string& rank, const Announcement& a) {
  const auto kind = static_cast<wire::Kind>(a.kind);
  const auto dtype = static_cast<wire::DType>(a.dtype);
  const auto op = static_cast<wire::Op>(a.op);
  std::string out = rank + " operation " + std::to_string(a.op_id) + " is " + wire::to_string(kind) +
                    " of count " + std::to_string(a.count) + " dtype ";
  out += wire::is_valid(dtype) ? wire::to_string(dtype) : "?";
  out += " op ";
  out += wire::is_valid(op) ? wire::to_string(op) : "?";
  if (kind == wire::Kind::kReduce || kind == wire::Kind::kBroadcast) out += " root " + std::to_string(a.root);
  return out;
}

}  // namespace

void LocalSession::check_failures() noexcept {
  try {
    if (const FailureRecord& failure = segment_->failure();
        failure.state.load(std::memory_order_seq_cst) == FailureRecord::kSet) {
      const auto code = static_cast<Errc>(failure.code);
      const Errc known = is_known(code) && code != Errc::kOk ? code : Errc::kInternal;
      end_here(failure.rank < ranks() ? failure.rank : wire::kNoRank, known, reason_for_others(), known);
    } else if (end_latch_.code() == Errc::kOk) {
      check_peers();
    }
    if (const Errc ended = end_latch_.code(); ended != Errc::kOk && stage_->oldest() != nullptr) {
      stage_->end_all(ended);
      signal();
    }
  } catch (const std::exception&) {  // out of memory
    end_here(rank(), Errc::kExhausted, {}, Errc::kExhausted);
    stage_->end_all(Errc::kExhausted);
    signal();
  }
}

void LocalSession::check_peers() {
  for (uint32_t peer = 0; peer < segment_->ranks(); ++peer) {
    if (watch_->state(peer) != PeerState::kDied) continue;
    // For all: another rank may see the end of this one before that of the dead one.
    return end_for_all(
        rank_of(peer), Errc::kPeerLost,
        name_of(peer) + " lost: its process " + std::to_string(segment_->process(peer).load()) + " has ended",
        Errc::kPeerLost);
  }
  // A rank that has left has arrived at all pieces of the operations that it knew.
  uint32_t missing = 0;
  const auto has_left = [this](uint32_t peer) { return watch_->state(peer) == PeerState::kLeft; };
  if (stage_->oldest() != nullptr && stage_->count_missing(missing, has_left) > 0) {
    // A rank that ends the session says so before it leaves.
    if (segment_->failure().state.load(std::memory_order_seq_cst) == FailureRecord::kSet)
      return check_failures();
    return end_here(rank_of(missing), Errc::kRankLeft,
                    name_of(missing) + " left the session; rank " + std::to_string(rank()) + " continued",
                    Errc::kRankLeft);
  }
  check_rails();
  follow_pool();
}

// Who knows most speaks first: of a rank of its own host that is late; then who makes the piece, and knows
// which host its rail waits for.
Nanos LocalSession::operation_deadline(Nanos now) const noexcept {
  const engine::Operation* const o = stage_->oldest();
  if (o == nullptr || o->request.deadline == 0) return engine::kNoDeadline;
  uint32_t first = 0;
  if (now < o->request.deadline || stage_->count_missing(first, [](uint32_t) { return true; }) > 0)
    return o->request.deadline;
  const int others = (topology_.hosts() > 1 ? 1 : 0) + (stage_->has_other_maker() ? 1 : 0);
  return o->request.deadline + others * kPatience;
}

void LocalSession::check_deadline(Nanos now) noexcept {
  if (now < operation_deadline(now)) return;
  try {
    end_for_all(first_missing(), Errc::kOpTimeout, describe_missing(), Errc::kOpTimeout);
  } catch (const std::exception&) {
    end_for_all(wire::kNoRank, Errc::kOpTimeout, {}, Errc::kOpTimeout);
  }
}

void LocalSession::abort(Errc code, const std::string& reason, Errc code_for_others) noexcept {
  blackbox_.record(blackbox::EventKind::kAborted, {.code = code_for_others}, reason);
  dump_.request("a session was aborted");
  end_by_own_failure(code, reason, code_for_others);
}

void LocalSession::end_here(Rank at_fault, Errc code, const std::string& text, Errc code_for_rails,
                            const std::string& text_for_rails) noexcept {
  try {
    if (!end_latch_.set(code, text, at_fault)) return;
  } catch (const std::exception&) {  // out of memory: an end without a reason
    if (!end_latch_.set(code, {}, at_fault)) return;
  }
  if (is_recorded_.load(std::memory_order_seq_cst)) {
    blackbox_.record(blackbox::EventKind::kEnded, {.peer = at_fault, .code = code}, text);
    if (code != Errc::kClosed) dump_.request("a session failed");
  }
  // Rails that this rank serves end on the other hosts too, whose ranks then learn the reason.
  if (code_for_rails != Errc::kOk && are_rails_complete_.load(std::memory_order_seq_cst))
    abort_rails(at_fault, code_for_rails, text_for_rails);
  {
    const std::lock_guard lock(mutex_);
    if (early_end_ != nullptr) early_end_->set();
  }
  if (stage_) stage_->wake();
  signal();
}

void LocalSession::end_for_all(Rank at_fault, Errc code, const std::string& reason,
                               Errc code_for_others) noexcept {
  if (end_latch_.code() != Errc::kOk) return;
  tell_others(at_fault, code_for_others, reason);
  end_here(at_fault, code, reason, code_for_others);
  stage_->wake_all();
}

void LocalSession::end_by_own_failure(Errc code, const std::string& reason, Errc code_for_others) noexcept {
  if (end_latch_.code() != Errc::kOk) return;
  std::string with_rank;
  try {
    with_rank = "rank " + std::to_string(rank()) + ": " + reason;
  } catch (const std::exception&) {  // out of memory: a reason without the rank
  }
  const std::string& for_others = with_rank.empty() ? reason : with_rank;
  // Here first: this rank's thread must not find what the others are told.
  end_here(rank(), code, reason, code_for_others, for_others);
  tell_others(rank(), code_for_others, for_others);
  stage_->wake_all();
}

void LocalSession::tell_others(Rank at_fault, Errc code, const std::string& reason) noexcept {
  FailureRecord& failure = segment_->failure();
  uint32_t expected = FailureRecord::kNone;
  if (!failure.state.compare_exchange_strong(expected, FailureRecord::kWriting, std::memory_order_seq_cst))
    return;
  failure.code = static_cast<uint32_t>(code);
  failure.rank = at_fault;
  const size_t length = std::min(reason.size(), failure.text.size() - 1);
  std::copy_n(reason.begin(), length, failure.text.begin());
  // A number that is cut is another one.
  constexpr std::string_view kMore = "...";
  if (length < reason.size()) std::ranges::copy(kMore, failure.text.begin() + length - kMore.size());
  failure.state.store(FailureRecord::kSet, std::memory_order_seq_cst);
}

std::string LocalSession::reason_for_others() const {
  const FailureRecord& failure = segment_->failure();
  if (failure.state.load(std::memory_order_seq_cst) != FailureRecord::kSet) return reason();
  return engine::replace_control_characters(
      std::string(failure.text.data(), ::strnlen(failure.text.data(), failure.text.size())));
}

std::string LocalSession::describe(const Stage::Mismatch& m) const {
  return std::string("ranks disagree on ") + first_difference(m.first, m.its) + ": " +
         local::describe(name_of(m.rank), m.its) + ", " + local::describe(name_of(0), m.first) +
         describe_parts();
}

std::string LocalSession::describe_parts() const {
  constexpr size_t kMost = 16;
  const engine::Operation* const o = stage_->oldest();
  if (o == nullptr || o->places.empty()) return {};
  std::vector<uint64_t> counts(ranks());
  for (const engine::ChunkPlace& place : o->places)
    counts[place.owner] += place.length / wire::size_of(o->request.dtype);
  std::string out = "; the parts on rank " + std::to_string(rank()) + " are ";
  for (size_t i = 0; i < std::min(counts.size(), kMost); ++i)
    out += (i == 0 ? "" : ", ") + std::to_string(counts[i]);
  return counts.size() > kMost ? out + " ..." : out;
}

// For reducers of earlier releases, which show pieces and hosts only. Operations end in order, so the one on
// which hosts disagree is this one or a later one.
std::string LocalSession::describe_oldest() const {
  const engine::Operation* const o = stage_->oldest();
  if (o == nullptr) return "hosts disagree";
  const engine::OpRequest& r = o->request;
  return "hosts disagree; of those not ended, the first " +
         local::describe("on rank " + std::to_string(rank()), {.count = r.count,
                                                               .op_id = o->op_id,
                                                               .root = r.root,
                                                               .kind = static_cast<uint8_t>(r.kind),
                                                               .dtype = static_cast<uint8_t>(r.dtype),
                                                               .op = static_cast<uint8_t>(r.op)});
}

Rank LocalSession::first_missing() const {
  uint32_t first = 0;
  if (stage_->count_missing(first, [](uint32_t) { return true; }) > 0) return rank_of(first);
  const engine::WaitingStatus waiting = waiting_on_rails();
  if (waiting.missing_ranks == 0 || topology_.local_ranks(waiting.first_rank) > 1) return wire::kNoRank;
  return topology_.ranks_of[waiting.first_rank].front();
}

std::string LocalSession::describe_missing() const {
  uint32_t first = 0;
  const uint32_t missing = stage_->count_missing(first, [](uint32_t) { return true; });
  std::string out = "an operation timed out";
  if (const engine::Operation* const o = stage_->oldest(); o != nullptr) {
    const engine::OpRequest& r = o->request;
    out = "operation " + std::to_string(o->op_id) + " (" + std::string(wire::to_string(r.kind)) + " of " +
          std::to_string(r.count) + " " + std::string(wire::to_string(r.dtype)) + ") timed out";
  }
  if (missing > 0) {
    out += "; waiting for " + std::to_string(missing) + (missing == 1 ? " rank" : " ranks") +
           ", the first is " + name_of(first);
    return out;
  }
  const engine::WaitingStatus waiting = waiting_on_rails();
  if (waiting.missing_ranks > 0) {
    out += "; waiting for " + std::to_string(waiting.missing_ranks) +
           (waiting.missing_ranks == 1 ? " host" : " hosts") + ", the first is that of " +
           name_ranks(topology_.ranks_of[waiting.first_rank]);
  } else if (topology_.hosts() > 1) {
    out += "; " + name_ranks(topology_.ranks_of[host_]) +
           (topology_.local_ranks(host_) == 1 ? " has" : " have") + " come to it and " +
           (topology_.local_ranks(host_) == 1 ? "waits" : "wait") + " for other hosts";
  }
  return out;
}

}  // namespace sluice::local
