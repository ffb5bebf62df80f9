#include "nccl_plugin/collnet/comm.h"

#include <array>
#include <cstdio>
#include <exception>
#include <numeric>
#include <utility>

#include "config/nccl_releases.h"
#include "core/clock.h"
#include "nccl_plugin/collnet/types.h"
#include "nccl_plugin/host/communicator_registry.h"
#include "nccl_plugin/host/log.h"
#include "nccl_plugin/host/nccl_release.h"
#include "nccl_plugin/host/process_stats.h"
#include "nccl_plugin/host/stats_file.h"

namespace sluice::nccl::collnet {
namespace {

const char* transport_text(const engine::SessionStats& stats) noexcept {
  if (stats.rdma_lanes == 0) return "TCP";
  return stats.rdma_lanes == stats.lane_connections ? "RDMA" : "RDMA and TCP";
}

// "4 reducers", "4 reducers and 8 co-located" or "8 co-located reducers".
std::array<char, 64> reducers_text(uint32_t dedicated, uint32_t colocated) noexcept {
  std::array<char, 64> text{};
  if (colocated == 0) {
    std::snprintf(text.data(), text.size(), "%u reducers", dedicated);
  } else if (dedicated == 0) {
    std::snprintf(text.data(), text.size(), "%u co-located reducers", colocated);
  } else {
    std::snprintf(text.data(), text.size(), "%u reducers and %u co-located", dedicated, colocated);
  }
  return text;
}

}  // namespace

Comm::Comm(std::unique_ptr<engine::Session> session, uint32_t nodes, uint32_t rank, uint64_t window_bytes,
           uint64_t communicator)
    : session_(std::move(session)),
      nodes_(nodes),
      rank_(rank),
      reducers_(session_->stats().reducers),
      colocated_(session_->stats().colocated_reducers),
      budget_(window_bytes * (reducers_ + colocated_)),
      begin_(monotonic_now()) {
  for (Request& r : requests_) r.comm = this;
  std::iota(free_.begin(), free_.end(), uint8_t{0});
  const engine::SessionStats stats = session_->stats();
  communicator_registry().add(
      {.owner = this, .nodes = nodes, .comm_id = 0, .transport = transport_text(stats)});
  attachment_.emplace(communicator, session_->trace());
}

Comm::~Comm() {
  communicator_registry().remove(this);
}

void Comm::log_verdict_without_tuner() noexcept {
  if (std::exchange(logged_verdict_, true) || communicator_registry().has_tuner()) return;
  info("offload ON %s, %u nodes, allreduces of the sizes that NCCL chooses: it asks no tuner of this plugin",
       reducers_text(reducers_, colocated_).data(), nodes_);
}

Status Comm::start(const void* send, void* receive, size_t count, int data_type, int op,
                   Request** request) noexcept {
  const auto dtype = dtype_of(data_type);
  const auto operation = op_of(op);
  if (!dtype || !operation || count > (uint64_t{1} << 40)) return Errc::kInvalidArgument;
  const uint32_t open = open_.load(std::memory_order_relaxed);
  const uint64_t bytes = count * wire::size_of(*dtype);
  // All ranks post in the same order, and each accepts its oldest request when no other is running. So ranks
  // whose budgets are exhausted at different requests cannot wait for each other.
  if (exceeds_budget(bytes)) {
    if (const Status s = poll_requests(); !s.ok()) return s;
    if (exceeds_budget(bytes)) return {};
  }
  if (open == kMaxRequests) return {};
  Request& r = requests_[free_[kMaxRequests - 1 - open]];
  r.send = static_cast<const std::byte*>(send);
  r.receive = static_cast<std::byte*>(receive);
  r.bytes = bytes;
  const std::lock_guard lock(mutex_);
  if (end_ != Errc::kOk) return end_;
  const Status s = session_->start(
      {.send = r.send, .recv = r.receive, .count = count, .dtype = *dtype, .op = *operation, .deadline = 0},
      r.operation);
  if (s.code() == Errc::kExhausted) return {};
  if (!s.ok()) {
    record_end(s);
    return s;
  }
  r.begin = monotonic_now();
  r.open = true;
  r.done = false;
  running_bytes_ += bytes;
  if (running_requests_++ == 0) busy_since_ = r.begin;
  open_.store(open + 1, std::memory_order_relaxed);
  *request = &r;
  if (!logged_verdict_) log_verdict_without_tuner();
  return {};
}

Status Comm::poll_requests() noexcept {
  const std::lock_guard lock(mutex_);
  if (end_ != Errc::kOk) return end_;
  for (Request& r : requests_) {
    if (!r.open) continue;
    if (const Status s = poll_request(r); !s.ok()) return s;
  }
  return {};
}

Status Comm::poll_request(Request& request) noexcept {
  if (request.done) return {};
  const Status s = session_->test(request.operation, request.done);
  if (!s.ok()) {
    record_end(s);
    return s;
  }
  if (!request.done) return s;
  running_bytes_ -= request.bytes;
  const Nanos now = monotonic_now();
  if (--running_requests_ == 0) busy_ += now - busy_since_;
  latency_.add(now - request.begin);
  return s;
}

Status Comm::test(Request& request, bool* done, size_t* bytes) noexcept {
  *done = false;
  const std::lock_guard lock(mutex_);
  if (end_ != Errc::kOk) return end_;
  if (const Status s = poll_request(request); !s.ok() || !request.done) return s;
  *done = true;
  request.open = false;
  const uint32_t open = open_.load(std::memory_order_relaxed) - 1;
  free_[kMaxRequests - 1 - open] = static_cast<uint8_t>(&request - requests_.data());
  open_.store(open, std::memory_order_relaxed);
  *bytes = request.bytes;
  ++operations_;
  bytes_ += request.bytes;
  return {};
}

void Comm::record_end(Status status) noexcept {
  end_ = status.code();
  communicator_registry().mark_failed(this);
  try {
    std::string note;
    if (const int release = nccl_release(); config::has_defect(release, config::NcclDefect::kErrorsDropped)) {
      note = "; node " + std::to_string(rank_) + ": NCCL " + config::release_text(release) +
             " drops this error (mended in 2.28.3): running collectives wait without an error, and only the "
             "next "
             "allreduce fails; end the job";
    }
    warn("offload ended: %s: %s%s", to_string(status.code()).data(), session_->reason().c_str(),
         note.c_str());
  } catch (...) {  // out of memory for the text: NCCL still gets the code
  }
}

void Comm::quiesce(const RegisteredRanges::Range& range) noexcept {
  const std::lock_guard lock(mutex_);
  if (!session_) return;
  for (const Request& r : requests_) {
    if (!r.open || !(range.overlaps(r.send, r.bytes) || range.overlaps(r.receive, r.bytes))) continue;
    if (end_ == Errc::kOk) end_ = Errc::kAborted;
    abort_session();
    return;
  }
}

// Without the lock, because registration is slow. Only this thread destroys the session.
void Comm::register_memory(std::span<std::byte> bytes) noexcept {
  if (!session_ || bytes.empty()) return;
  try {
    const auto registered = session_->register_memory(bytes);
    if (!registered && !std::exchange(logged_copies_, true))
      info("payload is copied, RDMA registration failed: %s", registered.error().text.c_str());
  } catch (...) {  // out of memory: the payload is copied
  }
}

void Comm::deregister_memory(std::span<std::byte> bytes) noexcept {
  if (session_ && !bytes.empty()) (void)session_->deregister_memory(bytes);
}

void Comm::abort_session() noexcept {
  try {
    session_->abort(Errc::kAborted, "NCCL closed the communicator with requests open");
  } catch (...) {  // out of memory for the text: the other nodes lose this node at the reducers' deadline
  }
  attachment_.reset();
  session_.reset();  // after this no buffer is accessed
}

void Comm::close() noexcept {
  const std::lock_guard lock(mutex_);
  engine::SessionStats stats;
  if (session_) {
    stats = session_->stats();
    if (open_.load(std::memory_order_relaxed) > 0) {
      abort_session();
    } else {
      attachment_.reset();
      (void)session_->close();  // blocks for the linger time at most
      session_.reset();
    }
  }
  const double share = process_stats().offload_share();
  const engine::RecoveryStats& recovery = stats.recovery;
  std::array<char, 160> recovery_text{};
  if (recovery.view_changes + recovery.connections_resumed > 0) {
    std::snprintf(recovery_text.data(), recovery_text.size(),
                  "; recovered: %llu connections resumed, %llu view changes, %u reducers lost",
                  static_cast<unsigned long long>(recovery.connections_resumed),
                  static_cast<unsigned long long>(recovery.view_changes), recovery.reducers_lost);
  }
  if (has_stats_file()) write_stats(stats);
  info(
      "communicator of %u nodes closed: %llu requests, %.1f MB through %s, mean %.0f us, p99 %.0f "
      "us; slowest node %u, waited for %.1f ms; longest stall %.1f ms; %.0f %% of all allreduce bytes "
      "offloaded%s",
      nodes_, static_cast<unsigned long long>(operations_), 1e-6 * static_cast<double>(bytes_),
      reducers_text(reducers_, colocated_).data(), latency_.mean_us(), latency_.quantile_us(0.99),
      stats.slowest.rank, 1e-6 * static_cast<double>(stats.slowest.waited),
      1e-6 * static_cast<double>(stats.longest_stall), share < 0 ? 100.0 : 100 * share, recovery_text.data());
}

void Comm::write_stats(const engine::SessionStats& stats) noexcept {
  try {
    const engine::RecoveryStats& recovery = stats.recovery;
    const Nanos unfinished = running_requests_ != 0 ? monotonic_now() - busy_since_ : 0;
    const double busy = 1e-9 * static_cast<double>(busy_ + unfinished);
    StatsLine line("offloaded");
    line.number("nodes", nodes_).number("node", rank_).number("reducers", reducers_);
    line.number("colocated_reducers", colocated_);
    line.number("operations", operations_).number("bytes", bytes_);
    line.real("open_seconds", 1e-9 * static_cast<double>(monotonic_now() - begin_))
        .real("busy_seconds", busy);
    line.real("algbw_bytes_per_second", busy > 0 ? static_cast<double>(bytes_) / busy : 0);
    line.real("mean_us", latency_.mean_us()).real("p99_us", latency_.quantile_us(0.99));
    line.number("slowest_node", stats.slowest.rank)
        .real("slowest_behind_ms", 1e-6 * static_cast<double>(stats.slowest.waited));
    line.number("connections_resumed", recovery.connections_resumed)
        .number("view_changes", recovery.view_changes);
    line.number("reducers_lost", recovery.reducers_lost);
    line.real("longest_stall_ms", 1e-6 * static_cast<double>(stats.longest_stall));
    line.text("end", end_ == Errc::kOk ? "closed" : to_string(end_));
    append_stats(line);
  } catch (const std::exception&) {  // out of memory: the line is lost
  }
}

}  // namespace sluice::nccl::collnet
