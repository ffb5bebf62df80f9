// Class SessionLog writes log lines of one session. One process may have many sessions and several ranks of
// one session, so each line begins with the first digits of the session id, as in the reducers' logs, and
// the rank: "3f2a0b1c rank 2: reducer 10.0.0.7:7470 lost: ...". Any thread; not for the data path.
#pragma once

#include <string>

#include "core/ids.h"
#include "core/log.h"

namespace sluice::engine {

class SessionLog {
 public:
  SessionLog(const SessionId& session, Rank rank)
      : prefix_(to_string(session).substr(0, kDigits) + " rank " + std::to_string(rank) + ": ") {}

  void info(const std::string& line) const { log::info(prefix_ + line); }
  void warn(const std::string& line) const { log::warn(prefix_ + line); }

 private:
  static constexpr size_t kDigits = 8;
  std::string prefix_;
};

}  // namespace sluice::engine
