#include "nccl_plugin/collnet/comm.h"

#include <array>
#include <cstdio>
#include <exception>
#include <numeric>
#include <utility>

#include "core/clock.h"
#include "nccl_plugin/collnet/types.h"
#include "nccl_plugin/host/ledger.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::collnet {

Comm::Comm(std::unique_ptr<engine::Session> session, uint32_t nodes, uint32_t rank, uint32_t reducers,
           uint64_t budget)
    : session_(std::move(session)),
      nodes_(nodes),
      rank_(rank),
      reducers_(reducers),
      budget_(budget),
      begun_(monotonic_now()) {
  for (Request& r : requests_) r.comm = this;
  std::iota(free_.begin(), free_.end(), uint8_t{0});
}

Comm::~Comm() = default;

Status Comm::start(const void* send, void* receive, size_t count, int data_type, int op,
                   Request** request) noexcept {
  const auto dtype = dtype_of(data_type);
  const auto operation = op_of(op);
  if (!dtype || !operation || count > (uint64_t{1} << 40)) return Errc::kInvalidArgument;
  const uint32_t open = open_.load(std::memory_order_relaxed);
  const uint64_t bytes = count * wire::size_of(*dtype);
  // All ranks post in one order and each takes its oldest when nothing else is under way, so ranks that are
  // full at different requests do not wait for each other.
  if (over_budget(bytes)) {
    if (const Status s = reap(); !s.ok()) return s;
    if (over_budget(bytes)) return {};
  }
  if (open == kMostRequests) return {};
  Request& r = requests_[free_[kMostRequests - 1 - open]];
  r.send = static_cast<const std::byte*>(send);
  r.receive = static_cast<std::byte*>(receive);
  r.bytes = bytes;
  const std::lock_guard lock(ending_);
  if (ended_ != Errc::kOk) return ended_;
  const Status s = session_->allreduce(
      {.send = r.send, .recv = r.receive, .count = count, .dtype = *dtype, .op = *operation, .deadline = 0},
      r.name);
  if (s.code() == Errc::kExhausted) return {};
  if (!s.ok()) {
    tell_end(s);
    return s;
  }
  r.begun = monotonic_now();
  r.open = true;
  r.done = false;
  under_way_ += bytes;
  if (under_way_count_++ == 0) busy_since_ = r.begun;
  open_.store(open + 1, std::memory_order_relaxed);
  *request = &r;
  return {};
}

Status Comm::reap() noexcept {
  const std::lock_guard lock(ending_);
  if (ended_ != Errc::kOk) return ended_;
  for (Request& r : requests_) {
    if (!r.open) continue;
    if (const Status s = look(r); !s.ok()) return s;
  }
  return {};
}

Status Comm::look(Request& request) noexcept {
  if (request.done) return {};
  const Status s = session_->test(request.name, request.done);
  if (!s.ok()) {
    tell_end(s);
    return s;
  }
  if (!request.done) return s;
  under_way_ -= request.bytes;
  const Nanos now = monotonic_now();
  if (--under_way_count_ == 0) busy_ += now - busy_since_;
  latency_.add(now - request.begun);
  return s;
}

Status Comm::test(Request& request, bool* done, size_t* bytes) noexcept {
  *done = false;
  const std::lock_guard lock(ending_);
  if (ended_ != Errc::kOk) return ended_;
  if (const Status s = look(request); !s.ok() || !request.done) return s;
  *done = true;
  request.open = false;
  const uint32_t open = open_.load(std::memory_order_relaxed) - 1;
  free_[kMostRequests - 1 - open] = static_cast<uint8_t>(&request - requests_.data());
  open_.store(open, std::memory_order_relaxed);
  *bytes = request.bytes;
  ++calls_;
  bytes_ += request.bytes;
  return {};
}

void Comm::tell_end(Status status) noexcept {
  ended_ = status.code();
  try {
    warn("offload ended: %s: %s", to_string(status.code()).data(), session_->reason().c_str());
  } catch (...) {  // out of memory for the words: the code goes to NCCL all the same
  }
}

void Comm::quiesce(const Ranges::Range& range) noexcept {
  const std::lock_guard lock(ending_);
  if (!session_) return;
  for (const Request& r : requests_) {
    if (!r.open || !(range.touches(r.send, r.bytes) || range.touches(r.receive, r.bytes))) continue;
    if (ended_ == Errc::kOk) ended_ = Errc::kAborted;
    abandon();
    return;
  }
}

// No other thread lets go of the session; to register takes long.
void Comm::know(std::span<std::byte> bytes) noexcept {
  if (!session_ || bytes.empty()) return;
  try {
    if (const auto known = session_->know_memory(bytes); !known && !std::exchange(told_of_copies_, true))
      info("payload is copied: %s", known.error().text.c_str());
  } catch (...) {  // no memory to write it down: it is copied
  }
}

void Comm::forget(std::span<std::byte> bytes) noexcept {
  if (session_ && !bytes.empty()) (void)session_->forget_memory(bytes);
}

void Comm::abandon() noexcept {
  try {
    session_->abort(Errc::kAborted, "NCCL closed the communicator with requests open");
  } catch (...) {  // no memory for the words: the others miss this node at the reducers' deadline
  }
  session_.reset();  // its destructor lets go of every buffer
}

void Comm::leave() noexcept {
  const std::lock_guard lock(ending_);
  engine::Stragglers::Slowest slowest;
  engine::SurvivalCounts survival;
  if (session_) {
    const engine::SessionStats stats = session_->stats();
    slowest = stats.slowest;
    survival = stats.survival;
    if (open_.load(std::memory_order_relaxed) > 0) {
      abandon();
    } else {
      (void)session_->close();  // within the linger time
      session_.reset();
    }
  }
  const double share = ledger().share();
  std::array<char, 160> losses{};
  if (survival.view_changes + survival.connections_resumed > 0) {
    std::snprintf(
        losses.data(), losses.size(),
        "; survived: %llu connections resumed, %llu view changes, %u reducers lost, longest stall %.0f ms",
        static_cast<unsigned long long>(survival.connections_resumed),
        static_cast<unsigned long long>(survival.view_changes), survival.reducers_lost,
        1e-6 * static_cast<double>(survival.longest_stall_ns));
  }
  if (has_stats_file()) write_stats(slowest, survival);
  info(
      "communicator over %u nodes closed: %llu requests, %.1f MB through %u reducers, mean %.0f us, p99 %.0f "
      "us; "
      "slowest node %u, %.1f ms behind in all; %.0f %% of all allreduce bytes offloaded%s",
      nodes_, static_cast<unsigned long long>(calls_), 1e-6 * static_cast<double>(bytes_), reducers_,
      latency_.mean_us(), latency_.quantile_us(0.99), slowest.rank,
      1e-3 * static_cast<double>(slowest.lag_us), share < 0 ? 100.0 : 100 * share, losses.data());
}

void Comm::write_stats(const engine::Stragglers::Slowest& slowest,
                       const engine::SurvivalCounts& survival) noexcept {
  try {
    const Nanos unfinished = under_way_count_ != 0 ? monotonic_now() - busy_since_ : 0;
    const double busy = 1e-9 * static_cast<double>(busy_ + unfinished);
    StatsLine line("offloaded");
    line.number("nodes", nodes_).number("node", rank_).number("reducers", reducers_);
    line.number("operations", calls_).number("bytes", bytes_);
    line.real("open_seconds", 1e-9 * static_cast<double>(monotonic_now() - begun_))
        .real("busy_seconds", busy);
    line.real("algbw_bytes_per_second", busy > 0 ? static_cast<double>(bytes_) / busy : 0);
    line.real("mean_us", latency_.mean_us()).real("p99_us", latency_.quantile_us(0.99));
    line.number("slowest_node", slowest.rank)
        .real("slowest_behind_ms", 1e-3 * static_cast<double>(slowest.lag_us));
    line.number("connections_resumed", survival.connections_resumed)
        .number("view_changes", survival.view_changes);
    line.number("reducers_lost", survival.reducers_lost);
    line.real("longest_stall_ms", 1e-6 * static_cast<double>(survival.longest_stall_ns));
    line.text("end", ended_ == Errc::kOk ? "closed" : to_string(ended_));
    append_stats(line);
  } catch (const std::exception&) {  // out of memory for a line of statistics
  }
}

}  // namespace sluice::nccl::collnet
