// When a reducer that serves one job is done. Some platforms wait for every host of a job, so there a reducer
// has to end by itself: once the ranks it was told to expect have come and all sessions have gone. Any one
// thread; the caller has the clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/units.h"

namespace sluice::reducer {

class JobWatch {
 public:
  struct Terms {
    uint32_t expected = 0;  // ranks that one session must have had at a time; 0: nothing is watched
    Nanos arrival = 0;      // until they must have come; 0: however late
    // How long there must be no session before the job counts as over: between its communicators, and between
    // a job and its restart, there is a moment without any.
    Nanos idle = 0;
  };
  enum class Verdict : uint8_t { kGoOn, kDone, kNeverCame };

  JobWatch(const Terms& terms, Nanos now) noexcept : terms_(terms), started_(now), idle_since_(now) {}

  // A rank has joined: so many are in the largest session now. A session that begins and ends between two
  // looks counts.
  void joined(uint32_t ranks_now, Nanos now) noexcept {
    most_ = std::max(most_, ranks_now);
    idle_since_ = now;
  }
  // A session that runs is never ended: that fewer came than were expected may be a slip in the number.
  [[nodiscard]] Verdict look(Nanos now, bool has_sessions) noexcept;
  // The most ranks that a session had at a time.
  [[nodiscard]] uint32_t most() const noexcept { return most_; }

 private:
  const Terms terms_;
  const Nanos started_;
  Nanos idle_since_;
  uint32_t most_ = 0;
};

}  // namespace sluice::reducer
