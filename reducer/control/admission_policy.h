// Class AdmissionPolicy decides from a HELLO which clients a reducer serves: those of any job and session, or
// of one job, or of expected sessions only.
//
// A refused client costs no more than its connection, since the check precedes WELCOME and every reservation.
// expect_session(), forget_session() and expected_ranks(): any thread. The other functions: control thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/secret_file.h"
#include "core/ids.h"
#include "core/result.h"
#include "reducer/reducer.h"
#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::reducer {

// The token that a client must prove.
struct Credential {
  wire::Digest token{};
  bool has_key_id = false;  // HELLO names the key; the proof decides
};

class AdmissionPolicy {
 public:
  // `keys` are those of options.key_file.
  AdmissionPolicy(const ReducerOptions& options, std::vector<config::Secret> keys);

  // The reason to refuse the client; nothing: it is served after a valid proof.
  [[nodiscard]] std::optional<Error> check(const wire::Hello& hello) const;
  // The token of a client that check() has accepted; nothing: no authentication. kUnauthenticated: the client
  // holds another token.
  [[nodiscard]] Result<std::optional<Credential>> credential_of(const wire::Hello& hello) const;
  // The tokens of a job, in the order of the keys; empty: no authentication.
  [[nodiscard]] std::vector<wire::Digest> tokens_of(const std::string& job) const;
  [[nodiscard]] bool has_pool_key() const noexcept { return !keys_.empty(); }
  // For connections from now on.
  void replace_keys(std::vector<config::Secret> keys) { keys_ = std::move(keys); }

  void expect_session(const SessionId& session, uint32_t ranks);
  void forget_session(const SessionId& session) noexcept;
  // Of all expected sessions.
  [[nodiscard]] size_t expected_ranks() const;

 private:
  std::vector<config::Secret> keys_;
  const std::optional<wire::Digest> token_;
  const std::optional<std::string> job_;  // the only one that is served
  const bool only_expected_sessions_;
  mutable std::mutex mutex_;
  std::map<SessionId, uint32_t> expected_;  // ranks by session; guarded by mutex_
};

}  // namespace sluice::reducer
