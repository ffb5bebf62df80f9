// What became of the communicators of this process, for the words that people read.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

namespace sluice::nccl {

class Ledger {
 public:
  void connected() noexcept { connected_.fetch_add(1, std::memory_order_relaxed); }
  void connect_failed(std::string why) {
    const std::lock_guard lock(mutex_);
    last_failure_ = std::move(why);
    failed_.fetch_add(1, std::memory_order_relaxed);
  }
  // An allreduce that the tuner was asked about, and what it wanted.
  void asked(uint64_t bytes, bool offload) noexcept {
    asked_.fetch_add(bytes, std::memory_order_relaxed);
    if (offload) wanted_.fetch_add(bytes, std::memory_order_relaxed);
  }

  [[nodiscard]] uint32_t connections() const noexcept { return connected_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint32_t failures() const noexcept { return failed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string last_failure() const {
    const std::lock_guard lock(mutex_);
    return last_failure_;
  }
  // Of the bytes of all allreduces, those that were to be offloaded; negative when none was asked about.
  [[nodiscard]] double share() const noexcept {
    const uint64_t asked = asked_.load(std::memory_order_relaxed);
    return asked == 0
               ? -1
               : static_cast<double>(wanted_.load(std::memory_order_relaxed)) / static_cast<double>(asked);
  }

 private:
  mutable std::mutex mutex_;
  std::string last_failure_;
  std::atomic<uint32_t> connected_{0}, failed_{0};
  std::atomic<uint64_t> asked_{0}, wanted_{0};
};

[[nodiscard]] Ledger& ledger() noexcept;

}  // namespace sluice::nccl
