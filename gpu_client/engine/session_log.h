// Log lines of one session. A process may have many, several ranks of one of them too: each line begins with
// the first digits of the session's id, as the reducers' lines have it, and the rank.
#pragma once

#include <string>

#include "core/ids.h"
#include "core/log.h"

namespace sluice::engine {

// "3f2a0b1c rank 2: reducer 10.0.0.7:7470 was lost: ...". Any thread; cold code alone.
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
