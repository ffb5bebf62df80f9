// Class StallMeter measures the longest stall of a session: the longest time in which at least one operation
// was open, and the oldest chunk without a result stayed the same. The cause does not matter: a late rank, a
// frozen or lost reducer, a broken connection. A stall ends when that chunk has a result, by recovery or not.
// The stall in progress counts up to now.
//
// A stall begins when the progress loop finds nothing to do, so the time in which this rank itself copies and
// sends is not part of it. Nothing is called in a turn with work: chunks that move cost nothing here.
//
// The thread of the progress loop calls note() and extend(); any thread may call the others. No allocation,
// no lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/units.h"

namespace sluice::engine {

class StallMeter {
 public:
  // The loop had nothing to do at `now`. `chunk` is the oldest without a result; `open`: an operation is
  // open.
  void note(uint64_t chunk, bool open, Nanos now) noexcept {
    if (extend(chunk, open, now)) return;
    // A reader that finds the same `since_` before and after has read the chunk that belongs to it.
    since_.store(0, std::memory_order_seq_cst);
    chunk_.store(chunk, std::memory_order_seq_cst);
    if (open) since_.store(std::max<Nanos>(now, 1), std::memory_order_seq_cst);
  }
  // Before a turn that may find work. Returns false when no stall is in progress.
  bool extend(uint64_t chunk, bool open, Nanos now) noexcept {
    const Nanos since = since_.load(std::memory_order_relaxed);
    if (!open || since == 0 || chunk != chunk_.load(std::memory_order_relaxed)) return false;
    if (now - since > longest_.load(std::memory_order_relaxed))
      longest_.store(now - since, std::memory_order_relaxed);
    return true;
  }

  // With the values of the caller's time, because the loop may sleep.
  [[nodiscard]] Nanos longest(uint64_t chunk, bool open, Nanos now) const noexcept {
    const Nanos ended = longest_.load(std::memory_order_relaxed);
    return std::max(ended, current(chunk, open, now));
  }
  // The stall in progress; 0: none.
  [[nodiscard]] Nanos current(uint64_t chunk, bool open, Nanos now) const noexcept {
    const Nanos since = since_.load(std::memory_order_seq_cst);
    if (!open || since == 0 || chunk != chunk_.load(std::memory_order_seq_cst) ||
        since != since_.load(std::memory_order_seq_cst))
      return 0;
    return now - since;
  }

 private:
  std::atomic<Nanos> since_{0};  // begin of the stall; 0: none
  std::atomic<uint64_t> chunk_{0};
  std::atomic<Nanos> longest_{0};
};

}  // namespace sluice::engine
