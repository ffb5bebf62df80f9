#include "reducer/control/admission_policy.h"

#include <span>

#include "wire/handshake.h"

namespace sluice::reducer {

AdmissionPolicy::AdmissionPolicy(const ReducerOptions& options, std::vector<config::Secret> keys)
    : keys_(std::move(keys)),
      token_(options.token),
      // The job of a HELLO with the same text.
      job_(options.job ? std::optional(wire::job_name({.job = *options.job})) : std::nullopt),
      only_expected_sessions_(options.only_expected_sessions) {}

std::optional<Error> AdmissionPolicy::check(const wire::Hello& hello) const {
  const std::string& job = wire::job_name(hello);
  if (job_ && job != *job_)
    return Error{Errc::kUnauthenticated, "reducer serves a single job, which is not \"" + job + "\""};
  if (!only_expected_sessions_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (expected_.contains(hello.session)) return std::nullopt;
  return Error{Errc::kUnknownSession, "reducer does not expect session " + to_string(hello.session)};
}

std::vector<wire::Digest> AdmissionPolicy::tokens_of(const std::string& job) const {
  if (token_) return {*token_};
  std::vector<wire::Digest> tokens;
  for (const config::Secret& key : keys_)
    tokens.push_back(wire::job_token(std::as_bytes(std::span(key)), job));
  return tokens;
}

Result<std::optional<Credential>> AdmissionPolicy::credential_of(const wire::Hello& hello) const {
  const std::string& job = wire::job_name(hello);
  const std::vector<wire::Digest> tokens = tokens_of(job);
  if (tokens.empty()) return std::optional<Credential>();
  if (!hello.key_id) return std::optional(Credential{.token = tokens.front()});
  for (const wire::Digest& token : tokens) {
    if (wire::key_id(token, hello.nonce) == *hello.key_id)
      return std::optional(Credential{.token = token, .has_key_id = true});
  }
  return fail(Errc::kUnauthenticated, "wrong token for job \"" + job +
                                          "\": it belongs to another job or another pool key; check "
                                          "SLUICE_KEY_FILE, SLUICE_TOKEN_FILE and SLUICE_JOB");
}

void AdmissionPolicy::expect_session(const SessionId& session, uint32_t ranks) {
  const std::lock_guard lock(mutex_);
  expected_.insert_or_assign(session, ranks);
}

void AdmissionPolicy::forget_session(const SessionId& session) noexcept {
  const std::lock_guard lock(mutex_);
  expected_.erase(session);
}

size_t AdmissionPolicy::expected_ranks() const {
  const std::lock_guard lock(mutex_);
  size_t ranks = 0;
  for (const auto& [session, of_session] : expected_) ranks += of_session;
  return ranks;
}

}  // namespace sluice::reducer
