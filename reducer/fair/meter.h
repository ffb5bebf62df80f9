// Class Meter counts the bytes that a lane has served to one session, against a limit.
//
// The lane counts and FairShares sets the limit. Lock-free.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/units.h"
#include "reducer/fair/arrival_list.h"

namespace sluice::reducer {

class alignas(kCacheLine) Meter {
 public:
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  // ---- lane thread ----
  [[nodiscard]] bool may_serve() const noexcept {
    return served_.load(std::memory_order_relaxed) < limit_.load(std::memory_order_relaxed);
  }
  // A load and a store suffice because one thread writes.
  void add(uint64_t bytes) noexcept {
    served_.store(served_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
    if (reports_.load(std::memory_order_relaxed)) report();
  }
  // `held` means that the limit holds back a fold that is ready.
  void set_held(bool held) noexcept {
    if (held_.load(std::memory_order_relaxed) != held) held_.store(held, std::memory_order_relaxed);
  }

  // ---- any thread ----
  // Payload bytes of results times ranks: what the session has moved in each direction.
  [[nodiscard]] uint64_t served() const noexcept { return served_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool held() const noexcept { return held_.load(std::memory_order_relaxed); }

  // ---- FairShares ----
  // Where watch() reports. Before a lane knows the meter.
  void report_to(ArrivalList& list, ArrivalList::Entry& session) noexcept {
    list_ = &list, session_ = &session;
  }
  // The next add() puts the session in the list. One that happens at the same time may not; then the one
  // after it does.
  void watch() noexcept { reports_.store(true, std::memory_order_release); }
  // The count may exceed the limit by one chunk, since a started fold finishes.
  void set_limit(uint64_t served) noexcept { limit_.store(served, std::memory_order_relaxed); }

 private:
  void report() noexcept {
    reports_.store(false, std::memory_order_relaxed);
    list_->add(*session_);
  }

  std::atomic<uint64_t> served_{0};
  std::atomic<uint64_t> limit_{kNoLimit};
  std::atomic<bool> held_{false};
  std::atomic<bool> reports_{false};
  ArrivalList* list_ = nullptr;
  ArrivalList::Entry* session_ = nullptr;
};

}  // namespace sluice::reducer
