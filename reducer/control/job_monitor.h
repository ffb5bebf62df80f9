// Class JobMonitor decides when a reducer that serves a single job is done.
//
// Some platforms wait for every host of a job, so the reducer must end by itself: after the expected ranks
// have joined and all sessions have ended. One thread; the caller provides the clock.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/units.h"

namespace sluice::reducer {

class JobMonitor {
 public:
  struct Options {
    uint32_t expected_ranks = 0;  // ranks that one session must have had at the same time; 0: monitor nothing
    Nanos arrival_timeout = 0;    // for the ranks to join; 0: none
    // How long there must be no session before the job counts as done. A job has short times without a
    // session between its communicators and during a restart.
    Nanos idle_timeout = 0;
  };
  enum class State : uint8_t { kRunning, kDone, kNeverStarted };

  JobMonitor(const Options& options, Nanos now) noexcept
      : options_(options), started_(now), idle_since_(now) {}

  // A rank has joined a session, which now has `ranks_now` ranks: a job has a session for each communicator
  // and head, and each has all of the job's nodes. Called for each rank, so that a session between two calls
  // of check() counts.
  void on_join(uint32_t ranks_now, Nanos now) noexcept {
    max_ranks_ = std::max(max_ranks_, ranks_now);
    idle_since_ = now;
  }
  // A push to a model: the job has arrived, also if its workers join no session.
  void on_push() noexcept { has_pushes_ = true; }
  [[nodiscard]] bool has_pushes() const noexcept { return has_pushes_; }
  // `has_work`: there is a session, or an open connection of models. Returns kRunning then, however few ranks
  // it has: the expected number may be wrong.
  [[nodiscard]] State check(Nanos now, bool has_work) noexcept {
    if (options_.expected_ranks == 0) return State::kRunning;
    if (has_work) {
      idle_since_ = now;
      return State::kRunning;
    }
    const bool is_idle = now - idle_since_ >= options_.idle_timeout;
    if (max_ranks_ >= options_.expected_ranks || has_pushes_) return is_idle ? State::kDone : State::kRunning;
    const bool is_late = options_.arrival_timeout != 0 && now - started_ >= options_.arrival_timeout;
    return is_late && (max_ranks_ == 0 || is_idle) ? State::kNeverStarted : State::kRunning;
  }
  // The most ranks that one session had at the same time.
  [[nodiscard]] uint32_t max_ranks() const noexcept { return max_ranks_; }

 private:
  const Options options_;
  const Nanos started_;
  Nanos idle_since_;
  uint32_t max_ranks_ = 0;
  bool has_pushes_ = false;
};

}  // namespace sluice::reducer
