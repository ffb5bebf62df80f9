// Class MemoryBudget counts the memory of all models on a reducer against --state-memory.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace sluice::store {

class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t limit) noexcept : limit_(limit) {}

  [[nodiscard]] uint64_t limit() const noexcept { return limit_; }
  [[nodiscard]] uint64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

  // False, without effect, if the limit would be exceeded.
  [[nodiscard]] bool try_add(uint64_t bytes) noexcept {
    uint64_t used = this->used();
    do {
      if (used > limit_ || bytes > limit_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  // May exceed the limit: a shard is taken over although this reducer has not reserved memory for it.
  void add(uint64_t bytes) noexcept { used_.fetch_add(bytes, std::memory_order_relaxed); }
  void subtract(uint64_t bytes) noexcept {
    {
      const std::scoped_lock lock(mutex_);
      used_.fetch_sub(bytes, std::memory_order_relaxed);
    }
    returned_.notify_all();
  }

 private:
  friend class DeltaBuffers;  // those of all models wait for what any of them returns

  const uint64_t limit_;
  std::atomic<uint64_t> used_{0};
  std::mutex mutex_;
  std::condition_variable returned_;
};

}  // namespace sluice::store
