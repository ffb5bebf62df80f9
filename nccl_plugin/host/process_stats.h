#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace sluice::nccl {

// ProcessStats counts what became of all communicators of this process, for log messages. Any thread.
class ProcessStats {
 public:
  void add_connection() noexcept { connections_.fetch_add(1, std::memory_order_relaxed); }
  void add_failure(std::string reason) {
    const std::lock_guard lock(mutex_);
    last_failure_ = std::move(reason);
    failures_.fetch_add(1, std::memory_order_relaxed);
  }
  // Adds an allreduce that NCCL asked the tuner about; `offload`: the tuner chose CollNet.
  void add_allreduce(uint64_t bytes, bool offload) noexcept {
    allreduce_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (offload) offload_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  [[nodiscard]] uint32_t connections() const noexcept { return connections_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint32_t failures() const noexcept { return failures_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string last_failure() const {
    const std::lock_guard lock(mutex_);
    return last_failure_;
  }
  // The offloaded share of the bytes of all allreduces; negative without allreduces.
  [[nodiscard]] double offload_share() const noexcept {
    const uint64_t all = allreduce_bytes_.load(std::memory_order_relaxed);
    const uint64_t offloaded = offload_bytes_.load(std::memory_order_relaxed);
    return all == 0 ? -1 : static_cast<double>(offloaded) / static_cast<double>(all);
  }

 private:
  mutable std::mutex mutex_;
  std::string last_failure_;
  std::atomic<uint32_t> connections_{0}, failures_{0};
  std::atomic<uint64_t> allreduce_bytes_{0}, offload_bytes_{0};
};

[[nodiscard]] inline ProcessStats& process_stats() noexcept {
  static ProcessStats stats;
  return stats;
}

}  // namespace sluice::nccl
