#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/units.h"

namespace sluice {

// SpscRing is a bounded single-producer, single-consumer queue between the control loop and a lane. After
// construction it neither allocates nor locks. A push to a full ring fails at once and is counted.
template <typename T>
class SpscRing {
  static_assert(std::is_default_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

 public:
  // Rounds the capacity up to a power of two.
  explicit SpscRing(size_t capacity) : slots_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity)) {}
  SpscRing(const SpscRing&) = delete;
  SpscRing& operator=(const SpscRing&) = delete;

  // Producer thread. False when full; `value` is then unchanged and the failure is counted.
  [[nodiscard]] bool try_push(T& value) noexcept {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - cached_head_ == slots_.size()) {
      cached_head_ = head_.load(std::memory_order_acquire);  // pairs with the release in try_pop
      if (tail - cached_head_ == slots_.size()) {
        full_count_.fetch_add(1, std::memory_order_relaxed);
        return false;
      }
    }
    slots_[tail & (slots_.size() - 1)] = std::move(value);
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool try_push(T&& value) noexcept { return try_push(value); }

  // Consumer thread. False when empty.
  [[nodiscard]] bool try_pop(T& out) noexcept {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == cached_tail_) {
      cached_tail_ = tail_.load(std::memory_order_acquire);  // pairs with the release in try_push
      if (head == cached_tail_) return false;
    }
    T& slot = slots_[head & (slots_.size() - 1)];
    out = std::move(slot);
    slot = T{};
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  [[nodiscard]] size_t capacity() const noexcept { return slots_.size(); }
  // Number of failed pushes. Any thread.
  [[nodiscard]] uint64_t full_count() const noexcept { return full_count_.load(std::memory_order_relaxed); }

 private:
  std::vector<T> slots_;
  alignas(kCacheLine) std::atomic<uint64_t> head_{0};
  uint64_t cached_tail_ = 0;  // used by the consumer only
  alignas(kCacheLine) std::atomic<uint64_t> tail_{0};
  uint64_t cached_head_ = 0;  // used by the producer only
  std::atomic<uint64_t> full_count_{0};
};

}  // namespace sluice
