// Class SessionLog writes log lines of one session. One process may have many sessions and several ranks of
// one session, so each line begins with the first digits of the session id, as in the reducers' logs, and
// the rank: "3f2a0b1c rank 2: reducer 10.0.0.7:7470 lost: ...". Any thread; not for the data path.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/ids.h"
#include "core/log.h"
#include "gpu_client/engine/base/member_names.h"

namespace sluice::engine {

class SessionLog {
 public:
  SessionLog(const SessionId& session, Rank rank)
      : prefix_(to_string(session).substr(0, kDigits) + " rank " + std::to_string(rank) + ": ") {}
  // Of a session that is part of another one, with the names that its user knows; null: of another session.
  SessionLog(const SessionId& session, Rank rank, std::shared_ptr<const MemberNames> names)
      : SessionLog(names ? names->session() : session, names ? names->rank() : rank) {
    names_ = std::move(names);
    if (names_) prefix_ += names_->part() + ": ";
  }

  void info(const std::string& line) const { log::info(prefix_ + outward(line)); }
  void warn(const std::string& line) const { log::warn(prefix_ + outward(line)); }

 private:
  static constexpr size_t kDigits = 8;
  [[nodiscard]] std::string outward(const std::string& line) const {
    return names_ ? names_->outward(line) : line;
  }
  std::shared_ptr<const MemberNames> names_;
  std::string prefix_;
};

}  // namespace sluice::engine
