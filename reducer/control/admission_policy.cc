#include "reducer/control/admission_policy.h"

#include <span>

#include "wire/handshake.h"

namespace sluice::reducer {

AdmissionPolicy::AdmissionPolicy(const ReducerOptions& options, std::optional<config::Secret> key)
    : key_(key),
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

std::optional<wire::Digest> AdmissionPolicy::token_for(const std::string& job) const {
  if (token_) return token_;
  if (!key_) return std::nullopt;
  return wire::job_token(std::as_bytes(std::span(*key_)), job);
}

void AdmissionPolicy::expect_session(const SessionId& session) {
  const std::lock_guard lock(mutex_);
  expected_.insert(session);
}

void AdmissionPolicy::forget_session(const SessionId& session) noexcept {
  const std::lock_guard lock(mutex_);
  expected_.erase(session);
}

}  // namespace sluice::reducer
