// Class JoinOutcomes keeps the outcome of each join for ranks that ask for it later.
//
// Outcomes are kept per job, because another job may use the same session id. They are bounded: the newest of
// each job, and if all jobs together have too many, the oldest of the job with the most goes, so that no job
// loses its own to one that has more. Control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "wire/messages.h"

namespace sluice::reducer {

class JoinOutcomes {
 public:
  static constexpr size_t kMaxOfJob = 256;
  static constexpr size_t kMaxKept = 4096;
  static constexpr Nanos kRetention = 60 * kSecond;

  using JobSession = std::pair<std::string, SessionId>;
  struct Refusal {
    Error error;
    uint32_t rank = 0;           // that caused the failure
    std::vector<bool> notified;  // by rank
  };

  // The verdict on the session, for clients of its job.
  [[nodiscard]] wire::Verdict find_verdict(const JobSession& session) const;
  void store_verdict(const JobSession& session, const wire::Verdict& verdict, Nanos now);

  // Ranks that join after the join has failed get the same error. `notified`: the ranks that have joined.
  void store_refusal(const JobSession& session, Error error, uint32_t rank,
                     const std::vector<uint32_t>& notified, Nanos now);
  // The refusal that the rank has not seen yet; afterwards it counts as notified. A rank that was notified
  // starts a new join, which removes the refusal.
  [[nodiscard]] const Refusal* take_refusal(const JobSession& session, uint32_t rank);
  void mark_notified(const JobSession& session, uint32_t rank);

  void remove_expired(Nanos now);

  [[nodiscard]] size_t kept() const noexcept { return kept_; }
  // Outcomes that had to go before their time.
  [[nodiscard]] uint64_t dropped() const noexcept { return dropped_; }

 private:
  struct Outcome {
    SessionId session;
    uint64_t number = 0;  // counts all outcomes
    Nanos expires = 0;
    std::optional<wire::Verdict> verdict{};
    std::optional<Refusal> refusal{};
  };
  struct Job {
    std::string name;
    std::list<Outcome> outcomes{};  // the oldest first
    std::map<SessionId, std::list<Outcome>::iterator> by_session{};
  };
  using Jobs = std::map<std::string, Job>;

  [[nodiscard]] const Outcome* find(const JobSession& session) const;
  [[nodiscard]] Outcome* find(const JobSession& session) {
    return const_cast<Outcome*>(std::as_const(*this).find(session));
  }
  // The outcome of the session, as the newest of its job.
  Outcome& renew(const JobSession& session, Nanos now);
  void remove_oldest(Job& job);
  // The last of by_size_ is the job with the most outcomes, and of several the one with the oldest.
  using Place = std::tuple<size_t, uint64_t, Job*>;
  [[nodiscard]] static Place place_of(Job& job) noexcept {
    return {job.outcomes.size(), ~job.outcomes.front().number, &job};
  }

  Jobs jobs_;  // with an outcome
  std::set<Place> by_size_;
  uint64_t last_number_ = 0;
  size_t kept_ = 0;
  uint64_t dropped_ = 0;
  Nanos next_check_at_ = 0;
};

}  // namespace sluice::reducer
