// A session in the reducer's status (status_report.cc).
#include "reducer/control/session/session_status.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reducer/control/control_loop.h"

namespace sluice::reducer {
namespace {

// The ranks that the others have waited for most, worst first.
nlohmann::json slow_ranks(const Session& session, size_t max_ranks) {
  std::vector<std::pair<Nanos, uint32_t>> waits;
  for (uint32_t rank = 0; rank < session.rank_count(); ++rank) {
    if (const Nanos waited = session.waited_for(rank); waited != 0) waits.emplace_back(waited, rank);
  }
  max_ranks = std::min(max_ranks, waits.size());
  std::ranges::partial_sort(waits, waits.begin() + static_cast<ptrdiff_t>(max_ranks), std::greater<>());
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < max_ranks; ++i) {
    list.push_back({{"rank", waits[i].second}, {"waited_ms", waits[i].first / kMillisecond}});
  }
  return list;
}

// JSON has no infinity.
double finite(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

// Totals of all ranks, and the ranks with the most severe findings, worst first.
nlohmann::json session_health(const Session& session, size_t max_ranks) {
  std::vector<std::pair<Session::HealthOfRank, uint32_t>> ranks;
  std::array<uint64_t, wire::kFindingKindCount> totals{};
  for (uint32_t rank = 0; rank < session.rank_count(); ++rank) {
    ranks.emplace_back(session.health_of(rank), rank);
    for (size_t i = 0; i < totals.size(); ++i) totals[i] += ranks.back().first.findings[i];
  }
  std::ranges::stable_sort(ranks, std::greater<>(), [](const auto& r) { return r.first.findings; });
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < std::min(ranks.size(), max_ranks); ++i) {
    const auto& [health, rank] = ranks[i];
    nlohmann::json entry = {{"rank", rank},
                            {"non_finite", health.non_finite},
                            {"largest", finite(health.largest)},
                            {"norm", finite(health.norm)},
                            {"zero_fraction", health.zero_fraction}};
    for (size_t k = 0; k < kFindingNames.size(); ++k) {
      if (health.findings[k] != 0) entry["findings"][kFindingNames[k]] = health.findings[k];
    }
    list.push_back(std::move(entry));
  }
  nlohmann::json findings = nlohmann::json::object();
  for (size_t k = 0; k < kFindingNames.size(); ++k) findings[kFindingNames[k]] = totals[k];
  return {{"findings", std::move(findings)}, {"ranks", std::move(list)}};
}

// The ranks whose lane connections have lost packets, most lost first, and those with a stall, longest first.
void add_paths(nlohmann::json& status, const Session& session, size_t max_ranks) {
  std::vector<std::pair<transport::PathReport, uint32_t>> paths;
  for (uint32_t rank = 0; rank < session.rank_count(); ++rank)
    paths.emplace_back(session.path_of(rank), rank);
  nlohmann::json losses = nlohmann::json::array(), stalls = losses;
  std::ranges::stable_sort(paths, std::greater<>(), [](const auto& p) { return p.first.lost_packets; });
  for (const auto& [path, rank] : std::span(paths).first(std::min(paths.size(), max_ranks))) {
    if (path.lost_packets == 0) break;
    losses.push_back({{"rank", rank}, {"packets", path.packets}, {"lost_packets", path.lost_packets}});
  }
  std::ranges::stable_sort(paths, std::greater<>(), [](const auto& p) { return p.first.stalled; });
  for (const auto& [path, rank] : std::span(paths).first(std::min(paths.size(), max_ranks))) {
    if (path.stalled < transport::PathWatch::kStall) break;
    stalls.push_back({{"rank", rank}, {"stalled_ms", path.stalled / kMillisecond}});
  }
  status["losses"] = std::move(losses);
  status["stalls"] = std::move(stalls);
}

}  // namespace

std::string id_text(uint64_t id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, id);
  return text.data();
}

nlohmann::json session_status(ControlLoop& loop, const Session& session, size_t max_ranks) {
  const Nanos held = loop.fair().with([&](const FairShares&) { return session.share().held_time; });
  // Half of the id: who knows all of it can join a session without a token, or take its place at a reducer
  // that has just restarted.
  nlohmann::json s = {{"id", to_string(session.id()).substr(0, 16)},
                      {"state", session.state_name()},
                      {"ranks", session.rank_count()},
                      {"order", std::string(wire::to_string(session.order()))},
                      {"joined", session.joined_ranks().size()},
                      {"reserved_bytes", session.reserved_bytes()},
                      {"tenant", session.tenant()},
                      {"served_bytes", session.served_bytes()},
                      {"slow_ranks", slow_ranks(session, max_ranks)},
                      {"held_ms", held / kMillisecond}};
  if (const auto m = session.missing(); m.since != 0) {
    s["waited_ms"] = (loop.now() - m.since) / kMillisecond;
    s["missing_ranks"] = m.count;
    s["missing"] =
        std::vector<uint32_t>(m.ranks.begin(), m.ranks.begin() + std::min<size_t>(m.count, m.ranks.size()));
  }
  add_paths(s, session, max_ranks);
  if (session.has_health()) s["health"] = session_health(session, max_ranks);
  if (session.is_fault_tolerant()) {
    const auto absent = session.absent_ranks();
    s["roster_version"] = session.history_version();
    s["absent_ranks"] = absent.size();
    s["absent"] = std::vector<uint32_t>(
        absent.begin(), absent.begin() + std::min<ptrdiff_t>(std::ssize(absent), wire::kMaxNamedRanks));
  }
  return s;
}

}  // namespace sluice::reducer
