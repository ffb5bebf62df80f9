// What one session has been given on one lane, and how far it may go before it must wait for others. The lane
// counts, the pool's shares set the limit; nobody locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/units.h"

namespace sluice::reducer {

class alignas(kCacheLine) Meter {
 public:
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  // ---- lane thread ----
  [[nodiscard]] bool may_serve() const noexcept {
    return served_.load(std::memory_order_relaxed) < limit_.load(std::memory_order_relaxed);
  }
  // One writer: a load and a store.
  void add(uint64_t bytes) noexcept {
    served_.store(served_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  // Whether something is ready that the limit holds back.
  void set_held(bool held) noexcept {
    if (held_.load(std::memory_order_relaxed) != held) held_.store(held, std::memory_order_relaxed);
  }

  // ---- any thread ----
  // Payload of results times ranks: what the session has moved each way.
  [[nodiscard]] uint64_t served() const noexcept { return served_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool held() const noexcept { return held_.load(std::memory_order_relaxed); }

  // ---- who has the shares ----
  // May be passed by one chunk: what has begun when the limit is reached is finished.
  void set_limit(uint64_t served) noexcept { limit_.store(served, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> served_{0};
  std::atomic<uint64_t> limit_{kNoLimit};
  std::atomic<bool> held_{false};
};

}  // namespace sluice::reducer
