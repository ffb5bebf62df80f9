#include "reducer/control/job_budgets.h"

#include <sys/resource.h>

#include <algorithm>

#include "reducer/control/admission_policy.h"
#include "wire/handshake.h"

namespace sluice::reducer {
namespace {

uint64_t descriptor_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur
                                                                                    : UINT64_MAX;
}

}  // namespace

JobBudgets::JobBudgets(const ReducerOptions& options, const AdmissionPolicy& admission)
    : options_(options), admission_(admission), descriptors_(descriptor_limit()) {}

uint64_t JobBudgets::limit(Resource resource) const {
  const bool serves_one_job = options_.only_expected_sessions || options_.expected_workers != 0;
  if (!admission_.has_pool_key() || serves_one_job || options_.job_share >= 100) return UINT64_MAX;
  uint64_t all = 0;
  switch (resource) {
    case Resource::kConnections: all = options_.max_connections; break;
    case Resource::kLanes: all = descriptors_; break;
    case Resource::kMemory: all = options_.memory_limit; break;
  }
  return all / 100 * options_.job_share + all % 100 * options_.job_share / 100;
}

Result<JobBudgets::Share> JobBudgets::take(Resource resource, const std::string& job, uint64_t amount) {
  const auto i = static_cast<size_t>(resource);
  const uint64_t most = job == wire::kReducerJob ? UINT64_MAX : limit(resource);
  const auto found = jobs_.find(job);
  const uint64_t used = found == jobs_.end() ? 0 : found->second[i];
  if (amount <= most - std::min(used, most)) {
    Share share;
    share.job_ = job, share.resource_ = resource, share.amount_ = amount;
    jobs_[job][i] += amount;
    share.budgets_ = this;
    return share;
  }
  ++refused_;
  struct Text {
    Errc code;
    const char *what, *of;
  };
  static constexpr std::array<Text, kResources> kTexts = {
      Text{Errc::kTooMany, "connections", "--max-connections"},
      {Errc::kTooMany, "lane connections", "the file descriptors (LimitNOFILE)"},
      {Errc::kMemoryLimit, "bytes of memory", "--memory-limit"}};
  const Text& text = kTexts[i];
  return fail(text.code, "job \"" + job + "\" needs " + std::to_string(amount) + " more " + text.what +
                             ", and has " + std::to_string(used) + " of the " + std::to_string(most) +
                             " that one job may have: --job-share " + std::to_string(options_.job_share) +
                             " % of " + text.of);
}

void JobBudgets::give_back(Resource resource, const std::string& job, uint64_t amount) noexcept {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  found->second[static_cast<size_t>(resource)] -= amount;
  if (found->second == Used{}) jobs_.erase(found);
}

}  // namespace sluice::reducer
