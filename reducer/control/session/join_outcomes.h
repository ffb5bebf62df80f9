// Class JoinOutcomes keeps the outcome of each join for ranks that ask for it later.
//
// Outcomes are kept per job, because another job may use the same session id. Control thread only.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/result.h"
#include "core/units.h"
#include "wire/messages.h"

namespace sluice::reducer {

class Session;

class JoinOutcomes {
 public:
  struct Refusal {
    Error error;
    uint32_t rank;  // that caused the failure
    std::unordered_set<uint32_t> notified;
    Nanos expires;
  };

  // The verdict on the session of `hello`, for clients of the session's job.
  [[nodiscard]] wire::Verdict find_verdict(const wire::Hello& hello) const;
  void store_verdict(const Session& session, const wire::Verdict& verdict, Nanos now);

  // Ranks that join after the join has failed get the same error. The ranks that have joined are notified
  // already.
  void store_refusal(const Session& session, Error error, uint32_t rank, Nanos now);
  // The refusal that the rank of `hello` has not seen yet; afterwards it counts as notified. A rank that was
  // notified starts a new join, which removes the refusal.
  [[nodiscard]] const Refusal* take_refusal(const wire::Hello& hello);
  void mark_notified(const Session& session, uint32_t rank);

  void remove_expired(Nanos now);

 private:
  struct Verdict {
    wire::Verdict verdict;
    Nanos expires;
  };
  using JobSession = std::pair<std::string, SessionId>;

  static constexpr Nanos kRetention = 60 * kSecond;

  std::map<JobSession, Verdict> verdicts_;
  std::map<JobSession, Refusal> refusals_;
};

}  // namespace sluice::reducer
