// Class SessionLog writes the log lines of sessions: beginnings, ends, failures and what precedes them.
//
// A job may begin and fail thousands of sessions per second, so the lines are bounded, the warnings apart
// from the others. A line that counts the suppressed ones follows. Control thread only.
#pragma once

#include <cstdint>
#include <string>

#include "core/units.h"
#include "reducer/control/line_limit.h"
#include "reducer/control/reducer_log.h"

namespace sluice::reducer {

class SessionLog {
 public:
  static constexpr uint32_t kLinesOfJob = 60;  // in kWindow, of each level
  static constexpr Nanos kWindow = 60 * kSecond;

  // `now` is the time of the control loop. Both arguments must outlive this object.
  SessionLog(const ReducerLog& log, const Nanos& now) noexcept : log_(log), now_(now) {}

  // `peer`: address and port of a rank of the session.
  void info(const std::string& job, const std::string& peer, const std::string& line) {
    if (infos_.admits(job, host_of(peer), now_)) log_.info(line);
  }
  void warn(const std::string& job, const std::string& peer, const std::string& line) {
    if (warnings_.admits(job, host_of(peer), now_)) log_.warn(line);
  }
  // Writes the counts of windows that have ended. end(): of all windows.
  void tick() { end_windows(now_); }
  void end() { end_windows(now_ + kWindow); }

 private:
  void end_windows(Nanos now);

  const ReducerLog& log_;
  const Nanos& now_;
  JobLineLimit infos_{kLinesOfJob, kWindow};
  JobLineLimit warnings_{kLinesOfJob, kWindow};
};

}  // namespace sluice::reducer
