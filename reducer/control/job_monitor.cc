#include "reducer/control/job_monitor.h"

namespace sluice::reducer {

JobMonitor::State JobMonitor::check(Nanos now, bool has_sessions) noexcept {
  if (options_.expected_ranks == 0) return State::kRunning;
  if (has_sessions) {
    idle_since_ = now;
    return State::kRunning;
  }
  const bool is_idle = now - idle_since_ >= options_.idle_timeout;
  if (max_ranks_ >= options_.expected_ranks) return is_idle ? State::kDone : State::kRunning;
  const bool is_late = options_.arrival_timeout != 0 && now - started_ >= options_.arrival_timeout;
  return is_late && (max_ranks_ == 0 || is_idle) ? State::kNeverStarted : State::kRunning;
}

}  // namespace sluice::reducer
