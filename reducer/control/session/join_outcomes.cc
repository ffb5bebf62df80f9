#include "reducer/control/session/join_outcomes.h"

#include "reducer/control/session/session.h"
#include "wire/handshake.h"

namespace sluice::reducer {

wire::Verdict JoinOutcomes::find_verdict(const wire::Hello& hello) const {
  const auto it = verdicts_.find({wire::job_name(hello), hello.session});
  if (it != verdicts_.end()) return it->second.verdict;
  wire::Verdict verdict;
  verdict.reason = {.code = Errc::kUnknownSession,
                    .text = "reducer has no verdict on session " + to_string(hello.session)};
  return verdict;
}

void JoinOutcomes::store_verdict(const Session& session, const wire::Verdict& verdict, Nanos now) {
  verdicts_[{session.job(), session.id()}] = {verdict, now + kRetention};
}

void JoinOutcomes::store_refusal(const Session& session, Error error, uint32_t rank, Nanos now) {
  const std::vector<uint32_t> notified = session.joined_ranks();
  refusals_[{session.job(), session.id()}] = {
      std::move(error), rank, {notified.begin(), notified.end()}, now + kRetention};
}

const JoinOutcomes::Refusal* JoinOutcomes::take_refusal(const wire::Hello& hello) {
  const auto it = refusals_.find({wire::job_name(hello), hello.session});
  if (it == refusals_.end()) return nullptr;
  if (it->second.notified.insert(hello.rank).second) return &it->second;
  refusals_.erase(it);
  return nullptr;
}

void JoinOutcomes::mark_notified(const Session& session, uint32_t rank) {
  if (auto it = refusals_.find({session.job(), session.id()}); it != refusals_.end())
    it->second.notified.insert(rank);
}

void JoinOutcomes::remove_expired(Nanos now) {
  std::erase_if(verdicts_, [now](const auto& v) { return v.second.expires <= now; });
  std::erase_if(refusals_, [now](const auto& r) { return r.second.expires <= now; });
}

}  // namespace sluice::reducer
