// Class RailLimit decides how many chunks each connection of a host's rails may have in flight. All ranks of
// all hosts end the same pieces in the same order, so they begin and end the trials of engine::InflightLimit
// together. Each rank makes them for the rails that it serves; a rail of its own host has the same limit.
//
// The rails of a host have more connections than a session with one rank for each host, and fill the same
// queues. So they begin with one chunk on each (docs/design/adr/0028).
//
// Threads: shared() is read by the threads of the rails. All else belongs to the thread that makes progress.
#pragma once

#include <cstdint>

#include "core/units.h"
#include "gpu_client/engine/data_path/inflight_limit.h"
#include "wire/view.h"

namespace sluice::local {

class RailLimit {
 public:
  // For the SessionOptions of the rails.
  [[nodiscard]] engine::SharedInflightLimit& shared() noexcept { return shared_; }

  void piece_ended(uint64_t bytes, Nanos now) noexcept {
    if (shared_.take_limited()) trials_.note_limited();
    trials_.result(true, false, bytes, now);
    shared_.set(trials_.limit());
  }
  // No operation is open any more.
  void idle(Nanos now) noexcept {
    trials_.idle(now);
    shared_.set(trials_.limit());
  }

 private:
  static constexpr uint32_t kFirst = 1;
  engine::InflightLimit trials_{wire::kMaxSlots, kFirst};
  engine::SharedInflightLimit shared_{kFirst};
};

}  // namespace sluice::local
