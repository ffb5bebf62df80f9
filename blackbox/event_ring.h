// Class EventRing keeps the last records of a process for its black box. Any thread adds a record without a
// lock, an allocation or a system call; the newest records replace the oldest.
//
// Each slot has a state: 2n + 1 while record n is being written, 2n + 2 when it is complete. A writer owns a
// slot between the two, so two writers that meet in a slot, because the ring wrapped around meanwhile, cannot
// mix their records: the second one drops its record and counts it. A reader that meets a writer skips the
// record. All accesses are atomic, so that no order of threads is a data race.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/units.h"

namespace sluice::blackbox {

template <typename Record, size_t kCapacity>
class EventRing {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % sizeof(uint64_t) == 0);
  static_assert(std::has_single_bit(kCapacity));

 public:
  constexpr EventRing() noexcept = default;
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  // Adds the first `bytes` of a record. The rest, when read, is what an older record left there. Any thread.
  void add(const Record& record, size_t bytes = sizeof(Record)) noexcept {
    const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    Slot& slot = slots_[number % kCapacity];
    const uint64_t writing = 2 * number + 1;
    uint64_t state = slot.state.load(std::memory_order_relaxed);
    // Odd: another writer is still in this slot. Greater: a newer record is already here.
    if (state % 2 != 0 || state > writing ||
        !slot.state.compare_exchange_strong(state, writing, std::memory_order_acquire,
                                            std::memory_order_relaxed)) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    const char* const from = reinterpret_cast<const char*>(&record);
    for (size_t i = 0; i < div_ceil(bytes, sizeof(uint64_t)); ++i) {
      uint64_t word = 0;
      std::memcpy(&word, from + i * sizeof word, sizeof word);
      // Release: a reader that sees the word also sees the state `writing`.
      slot.words[i].store(word, std::memory_order_release);
    }
    slot.state.store(writing + 1, std::memory_order_release);
  }

  // Copies record `number`, counted from 0. False when it was replaced, dropped or not written yet. Any
  // thread.
  [[nodiscard]] bool read(uint64_t number, Record& out) const noexcept {
    const Slot& slot = slots_[number % kCapacity];
    const uint64_t complete = 2 * number + 2;
    if (slot.state.load(std::memory_order_acquire) != complete) return false;
    Words words;
    for (size_t i = 0; i < kWords; ++i) words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.state.load(std::memory_order_relaxed) != complete) return false;
    out = std::bit_cast<Record>(words);
    return true;
  }

  // The number of the next record.
  [[nodiscard]] uint64_t end() const noexcept { return next_.load(std::memory_order_relaxed); }
  // The number of the oldest record that may still be here.
  [[nodiscard]] uint64_t begin() const noexcept {
    const uint64_t last = end();
    const uint64_t oldest = last > kCapacity ? last - kCapacity : 0;
    const uint64_t first = first_.load(std::memory_order_relaxed);
    return oldest > first ? oldest : first;
  }
  // Records that were replaced by newer ones.
  [[nodiscard]] uint64_t replaced() const noexcept {
    return begin() - first_.load(std::memory_order_relaxed);
  }
  // Records that met another writer.
  [[nodiscard]] uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  // Hides all records so far.
  void clear() noexcept { first_.store(end(), std::memory_order_relaxed); }

 private:
  static constexpr size_t kWords = sizeof(Record) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kWords>;
  struct Slot {
    std::atomic<uint64_t> state{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };

  alignas(kCacheLine) std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> first_{0};
  std::atomic<uint64_t> dropped_{0};
  alignas(kCacheLine) std::array<Slot, kCapacity> slots_{};
};

}  // namespace sluice::blackbox
