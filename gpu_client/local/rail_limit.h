// Class RailLimit decides how many chunks each connection of a host's rails may have in flight. All ranks of
// all hosts end the same pieces in the same order, so they begin and end the trials of engine::InflightLimit
// together. Each rank makes them for the rails that it serves; a rail of its own host has the same limit.
//
// Several sessions of a process, such as those of FSDP's scatters and gathers, use the same links at the same
// time. One gains at the others' expense, so then none makes trials.
//
// Threads: shared() is read by the threads of the rails. All else belongs to the thread that makes progress.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/units.h"
#include "gpu_client/engine/data_path/inflight_limit.h"
#include "wire/view.h"

namespace sluice::local {

class RailLimit {
 public:
  // For the SessionOptions of the rails.
  [[nodiscard]] engine::SharedInflightLimit& shared() noexcept { return shared_; }

  RailLimit() = default;
  RailLimit(const RailLimit&) = delete;
  ~RailLimit() { set_busy(false); }

  // Before the first operation. `at_once`: the bytes of one chunk on each connection that shares a queue
  // (wire::slot_bytes_for). `round_trip`: engine::SessionStats::round_trip.
  void begin(uint64_t at_once, Nanos round_trip) noexcept {
    const uint32_t first = at_once <= wire::kBytesAtOnce ? engine::InflightLimit::kFirst : 1;
    trials_ = engine::InflightLimit(wire::kMaxSlots, first, at_once);
    trials_.set_round_trip(round_trip);
    shared_.set(first);
  }
  void piece_ended(uint64_t bytes, Nanos now) noexcept {
    set_busy(true);
    if (busy_limits.load(std::memory_order_relaxed) > 1) trials_.note_others();
    if (shared_.take_limited()) trials_.note_limited();
    trials_.result(true, false, bytes, now);
    shared_.set(trials_.limit());
  }
  // No operation is open any more.
  void idle(Nanos now) noexcept {
    set_busy(false);
    trials_.idle(now);
    shared_.set(trials_.limit());
  }

 private:
  void set_busy(bool is_busy) noexcept {
    if (is_busy != is_busy_) busy_limits.fetch_add(is_busy ? 1 : -1, std::memory_order_relaxed);
    is_busy_ = is_busy;
  }

  inline static std::atomic<int> busy_limits{0};  // of this process
  bool is_busy_ = false;                          // a piece of an open operation has ended
  engine::InflightLimit trials_{wire::kMaxSlots, 1};
  engine::SharedInflightLimit shared_{1};
};

}  // namespace sluice::local
