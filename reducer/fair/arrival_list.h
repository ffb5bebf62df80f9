// Class ArrivalList holds the sessions that move bytes again after a pause. Lanes add them, FairShares takes
// them: so an update need not look for them among all sessions. Lock-free, without allocation.
#pragma once

#include <atomic>

namespace sluice::reducer {

class ArrivalList {
 public:
  struct Entry {
    Entry* next_arrival = nullptr;
    std::atomic<bool> has_arrived{false};  // until its owner waits for it again
  };

  // Any thread. The entry must live until it was taken.
  void add(Entry& entry) noexcept {
    if (entry.has_arrived.exchange(true, std::memory_order_acq_rel)) return;
    entry.next_arrival = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(entry.next_arrival, &entry, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
  }
  // One thread at a time.
  template <typename F>
  void take_all(F&& visit) noexcept {
    Entry* entry = first_.exchange(nullptr, std::memory_order_acquire);
    while (entry != nullptr) {
      Entry* const next = entry->next_arrival;
      visit(*entry);
      entry = next;
    }
  }

 private:
  std::atomic<Entry*> first_{nullptr};
};

}  // namespace sluice::reducer
