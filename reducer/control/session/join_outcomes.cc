#include "reducer/control/session/join_outcomes.h"

namespace sluice::reducer {
namespace {

constexpr Nanos kCheckInterval = kSecond;

void mark(std::vector<bool>& ranks, uint32_t rank) {
  if (rank >= ranks.size()) ranks.resize(size_t{rank} + 1);
  ranks[rank] = true;
}

}  // namespace

const JoinOutcomes::Outcome* JoinOutcomes::find(const JobSession& session) const {
  const auto job = jobs_.find(session.first);
  if (job == jobs_.end()) return nullptr;
  const auto found = job->second.by_session.find(session.second);
  return found == job->second.by_session.end() ? nullptr : &*found->second;
}

JoinOutcomes::Outcome& JoinOutcomes::renew(const JobSession& session, Nanos now) {
  Job& job = jobs_.try_emplace(session.first).first->second;
  if (job.outcomes.empty()) {
    job.name = session.first;
  } else {
    by_size_.erase(place_of(job));
  }
  const auto known = job.by_session.find(session.second);
  const bool is_new = known == job.by_session.end();
  if (is_new) {
    job.outcomes.push_back({.session = session.second});
    job.by_session.emplace(session.second, std::prev(job.outcomes.end()));
    ++kept_;
  } else {
    job.outcomes.splice(job.outcomes.end(), job.outcomes, known->second);
  }
  Outcome& outcome = job.outcomes.back();
  outcome.number = ++last_number_;
  outcome.expires = now + kRetention;
  by_size_.insert(place_of(job));
  if (is_new && (job.outcomes.size() > kMaxOfJob || kept_ > kMaxKept)) {
    ++dropped_;
    remove_oldest(job.outcomes.size() > kMaxOfJob ? job : *std::get<Job*>(*by_size_.rbegin()));
  }
  return outcome;
}

void JoinOutcomes::remove_oldest(Job& job) {
  by_size_.erase(place_of(job));
  job.by_session.erase(job.outcomes.front().session);
  job.outcomes.pop_front();
  --kept_;
  if (job.outcomes.empty()) {
    jobs_.erase(jobs_.find(job.name));
  } else {
    by_size_.insert(place_of(job));
  }
}

wire::Verdict JoinOutcomes::find_verdict(const JobSession& session) const {
  if (const Outcome* const outcome = find(session); outcome != nullptr && outcome->verdict)
    return *outcome->verdict;
  wire::Verdict verdict;
  verdict.reason = {.code = Errc::kUnknownSession,
                    .text = "reducer has no verdict on session " + to_string(session.second)};
  return verdict;
}

void JoinOutcomes::store_verdict(const JobSession& session, const wire::Verdict& verdict, Nanos now) {
  renew(session, now).verdict = verdict;
}

void JoinOutcomes::store_refusal(const JobSession& session, Error error, uint32_t rank,
                                 const std::vector<uint32_t>& notified, Nanos now) {
  Refusal refusal{.error = std::move(error), .rank = rank, .notified = {}};
  for (const uint32_t of : notified) mark(refusal.notified, of);
  renew(session, now).refusal = std::move(refusal);
}

const JoinOutcomes::Refusal* JoinOutcomes::take_refusal(const JobSession& session, uint32_t rank) {
  Outcome* const outcome = find(session);
  if (outcome == nullptr || !outcome->refusal) return nullptr;
  Refusal& refusal = *outcome->refusal;
  if (rank < refusal.notified.size() && refusal.notified[rank]) {
    outcome->refusal.reset();
    return nullptr;
  }
  mark(refusal.notified, rank);
  return &refusal;
}

void JoinOutcomes::mark_notified(const JobSession& session, uint32_t rank) {
  if (Outcome* const outcome = find(session); outcome != nullptr && outcome->refusal)
    mark(outcome->refusal->notified, rank);
}

void JoinOutcomes::remove_expired(Nanos now) {
  if (now < next_check_at_) return;
  next_check_at_ = now + kCheckInterval;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    Job& job = (at++)->second;
    for (size_t left = job.outcomes.size(); left > 0 && job.outcomes.front().expires <= now; --left)
      remove_oldest(job);
  }
}

}  // namespace sluice::reducer
