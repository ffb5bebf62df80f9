// Class AdmissionPolicy decides from a HELLO which clients a reducer serves: those of any job and session, or
// of one job, or of expected sessions only.
//
// A refused client costs no more than its connection, since the check precedes WELCOME and every reservation.
// expect_session() and forget_session(): any thread. The other functions: control thread.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "config/secret_file.h"
#include "core/ids.h"
#include "core/result.h"
#include "reducer/reducer.h"
#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::reducer {

class AdmissionPolicy {
 public:
  // `key` is the content of options.key_file.
  AdmissionPolicy(const ReducerOptions& options, std::optional<config::Secret> key);

  // The reason to refuse the client; nothing: it is served after a valid proof.
  [[nodiscard]] std::optional<Error> check(const wire::Hello& hello) const;
  // The token of the workers of `job`, which check() has accepted; nothing: no authentication.
  [[nodiscard]] std::optional<wire::Digest> token_for(const std::string& job) const;

  void expect_session(const SessionId& session);
  void forget_session(const SessionId& session) noexcept;

 private:
  const std::optional<config::Secret> key_;
  const std::optional<wire::Digest> token_;
  const std::optional<std::string> job_;  // the only one that is served
  const bool only_expected_sessions_;
  mutable std::mutex mutex_;
  std::set<SessionId> expected_;  // guarded by mutex_
};

}  // namespace sluice::reducer
