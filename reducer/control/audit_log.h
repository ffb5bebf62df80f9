// Class AuditLog writes the log lines that tell an operator who used a reducer: one for each session and each
// connection of models, and one for each client that did not prove a token.
//
// The lines are bounded: those of sessions and models for each job and the jobs of a host, those of refused
// clients for each host. A line that counts the suppressed ones follows. No line has a session id, which is
// the only secret of jobs without a token. Control thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.h"
#include "reducer/control/line_limit.h"
#include "reducer/control/reducer_log.h"

namespace sluice::reducer {

class AuditLog {
 public:
  static constexpr uint32_t kLinesOfJob = 30;   // in kWindow
  static constexpr uint32_t kLinesOfHost = 20;  // in kWindow; of a host whose clients are refused
  static constexpr Nanos kWindow = 60 * kSecond;
  static constexpr size_t kMaxHosts = 16;  // named in one line

  // `now` is the time of the control loop. Both arguments must outlive this object.
  AuditLog(const ReducerLog& log, const Nanos& now) noexcept : log_(log), now_(now) {}

  struct Session {
    std::string job, tenant;
    std::vector<std::string> peers;  // address and port of each rank that joined
    uint32_t ranks = 0;              // that belong to the session
    uint32_t with_old_key = 0;       // ranks whose token belongs to the second pool key now
  };
  // `result`: "started", or why not.
  void write_session(const Session& session, std::string_view result);
  void write_models(const std::string& job, const std::string& tenant, const std::string& peer,
                    bool has_old_key);
  // `job` is what the client claims.
  void write_unauthenticated(const std::string& peer, const std::string& job, const std::string& why);
  // Writes the counts of windows that have ended. end(): of all windows.
  void tick() { end_windows(now_); }
  void end() { end_windows(now_ + kWindow); }

 private:
  void end_windows(Nanos now);

  const ReducerLog& log_;
  const Nanos& now_;
  JobLineLimit jobs_{kLinesOfJob, kWindow};
  LineLimit refused_{kLinesOfHost, kWindow, 32};
};

}  // namespace sluice::reducer
