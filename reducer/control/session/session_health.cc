// What the scans of contributions show, for the status and the log (reducer/lane/health_monitor.h).
#include <algorithm>
#include <cmath>
#include <string>

#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"

namespace sluice::reducer {
namespace {

constexpr Nanos kLogInterval = 10 * kSecond;  // for each rank and kind

std::string finding_text(wire::FindingKind kind) {
  switch (kind) {
    case wire::FindingKind::kNonFinite: return "NaNs or infinities";
    case wire::FindingKind::kOutlier: return "values far larger than those of the other ranks";
    case wire::FindingKind::kZeros: return "nothing but zeros";
  }
  return {};
}

}  // namespace

Session::HealthOfRank Session::health_of(uint32_t rank) const noexcept {
  HealthOfRank sum;
  double squares = 0, values = 0, sampled = 0, zeros = 0;
  for (const auto& lane : lanes_) {
    const RankHealth& h = lane->health()->health_of(rank);
    sum.non_finite += h.non_finite.get();
    for (size_t i = 0; i < sum.findings.size(); ++i) sum.findings[i] += h.findings[i].get();
    sum.largest = std::max(sum.largest, h.largest.get());
    squares += h.square_sum.get();
    values += static_cast<double>(h.values.get());
    sampled += static_cast<double>(h.sampled.get());
    zeros += static_cast<double>(h.zeros.get());
  }
  if (sampled == 0) return sum;
  sum.norm = std::sqrt(squares / sampled * values);
  sum.zero_fraction = zeros / sampled;
  return sum;
}

void Session::log_findings(Nanos now) {
  if (!plan_.health) return;
  logged_findings_.resize(size_t{plan_.ranks} * wire::kFindingKindCount);
  for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
    const HealthOfRank health = health_of(rank);
    for (size_t i = 0; i < health.findings.size(); ++i) {
      LoggedFindings& logged = logged_findings_[rank * wire::kFindingKindCount + i];
      if (health.findings[i] == logged.count || (logged.at != 0 && now - logged.at < kLogInterval)) continue;
      const uint64_t chunks = health.findings[i] - logged.count;
      logged = {.count = health.findings[i], .at = now};
      log_warning(": rank " + std::to_string(rank) + " contributed " +
                  finding_text(static_cast<wire::FindingKind>(i + 1)) + " to " + std::to_string(chunks) +
                  (chunks == 1 ? " chunk" : " chunks"));
    }
  }
}

}  // namespace sluice::reducer
