// What a reducer says of itself. Keys are documented in docs/operations.md.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>

#include "reducer/control/conductor.h"
#include "reducer/control/lane_status.h"
#include "transport/rdma/device_report.h"

namespace sluice::reducer {
namespace {

// A reply to who asks over a connection must fit one control frame; sessions beyond what does, or beyond
// these, are counted, not listed. Of many sessions fewer slow ranks are named each.
constexpr size_t kListedSessions = 32;
constexpr size_t kListedSlowRanks = 16, kOfManySessions = 4, kManySessions = 8;

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

// As the log has it; a reader of JSON may keep 53 bits of a number.
std::string id_words(uint64_t id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, id);
  return text.data();
}

// Those that the others have waited for most so far, worst first.
nlohmann::json slow_ranks(const Session& session, size_t most) {
  std::vector<std::pair<Nanos, uint32_t>> waits;
  for (uint32_t rank = 0; rank < session.rank_count(); ++rank) {
    if (const Nanos waited = session.waited_for(rank); waited != 0) waits.emplace_back(waited, rank);
  }
  most = std::min(most, waits.size());
  std::ranges::partial_sort(waits, waits.begin() + static_cast<ptrdiff_t>(most), std::greater<>());
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < most; ++i) {
    list.push_back({{"rank", waits[i].second}, {"waited_ms", waits[i].first / kMillisecond}});
  }
  return list;
}

nlohmann::json rdma_devices(uint64_t& pairs_open) {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& d : transport::rdma::device_reports()) {
    pairs_open += d.pairs_open;
    nlohmann::json errors = nlohmann::json::object();
    for (const auto& [name, count] : d.completion_errors) errors[std::string(name)] = count;
    all.push_back(
        {{"device", d.device},
         {"bytes_in", d.bytes_in},
         {"bytes_out", d.bytes_out},
         {"pairs", {{"made", d.pairs_made}, {"open", d.pairs_open}, {"failed", d.pairs_failed}}},
         {"registrations",
          {{"made", d.registrations}, {"failed", d.registrations_failed}, {"bytes", d.registered_bytes}}},
         {"port_losses", d.port_losses},
         {"completion_errors", errors},
         {"retries_exhausted", d.retries_exhausted}});
  }
  return all;
}

}  // namespace

nlohmann::json Conductor::fair_status() const {
  return fair_.with([](const FairShares& shares) {
    uint64_t active = 0, held = 0, modest = 0;
    for (const FairShares::Member* m : shares.members()) {
      active += m->active ? 1 : 0;
      held += m->active && m->held ? 1 : 0;
      modest += m->modest ? 1 : 0;
    }
    return nlohmann::json{{"bytes_per_second", static_cast<uint64_t>(shares.bytes_per_second())},
                          {"active", active},
                          {"held", held},
                          {"modest", modest}};
  });
}

std::string Conductor::status_json() {
  now_ = std::max(now_, started_);
  nlohmann::json j;
  j["version"] = SLUICE_VERSION;
  j["reducer_id"] = id_;
  j["id"] = id_words(id_);
  j["uptime_seconds"] = static_cast<double>(now_ - started_) * 1e-9;
  j["draining"] = draining_;
  j["lanes"] = lanes_.size();
  j["memory"] = {{"limit_bytes", options_.memory_limit}, {"reserved_bytes", reserved_bytes_}};

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  j["cpu"] = {{"user_seconds", seconds(usage.ru_utime)}, {"system_seconds", seconds(usage.ru_stime)}};
  j["max_rss_bytes"] = uint64_t{1024} * static_cast<uint64_t>(usage.ru_maxrss);

  nlohmann::json closed = nlohmann::json::object();
  nlohmann::json refused = nlohmann::json::object();
  add_reasons(closed, counters_.closed);
  add_reasons(refused, refused_);
  uint64_t lane_resumes = 0;
  for (const auto& thread : lanes_) {
    const LaneCounters& c = thread->lane().counters();
    lane_resumes += c.resumes.get();
    add_reasons(closed, c.closed);
  }
  uint64_t rdma_pairs = 0;
  const auto devices = rdma_devices(rdma_pairs);
  add_lanes(j, lanes_, rdma_pairs);
  j["closed"] = closed;    // connections, by reason
  j["refused"] = refused;  // joins, by reason
  j["connections"] = {{"accepted", accepted_}, {"open", connections_.size()}};
  j["tls"] = {{"agreed", tls_counts_.agreed}, {"failed", tls_counts_.failed}};
  j["rdma"] = {{"rails", rdma_.rails.names},
               {"why_none", rdma_.why_none},
               {"paired", pair_counts_.paired},
               {"on_tcp", pair_counts_.on_tcp},
               {"devices", devices}};
  const auto joining = std::ranges::count_if(sessions_, [](const auto& s) { return s.second->joining(); });
  j["sessions"] = {{"begun", sessions_begun_}, {"completed", sessions_completed_},
                   {"moved", sessions_moved_}, {"failed", sessions_failed_},
                   {"open", sessions_.size()}, {"releasing", ending_.size()},
                   {"joining", joining}};
  j["resumes"] = {{"control", survival_.control_resumes}, {"lane", lane_resumes}};
  j["view_changes"] = {{"proposed", survival_.views_proposed}, {"committed", survival_.views_committed}};
  std::map<std::string, uint64_t> tenant_bytes;
  for (const auto& [id, session] : sessions_) tenant_bytes[session->tenant()] += session->served_bytes();
  for (const auto& session : ending_) tenant_bytes[session->tenant()] += session->served_bytes();
  j["tenants"] = tenants_.status(tenant_bytes);
  j["fair"] = fair_status();
  uint64_t waiting = 0;
  Nanos longest = 0;
  for (const auto& [id, session] : sessions_) {
    const Nanos since = session->missing().since;
    if (since == 0) continue;
    waiting += now_ - since >= kSecond ? 1 : 0;
    longest = std::max(longest, now_ - since);
  }
  j["waits"] = {{"sessions", waiting}, {"longest_ms", longest / kMillisecond}};
  nlohmann::json list = nlohmann::json::array();
  const size_t most = wire::kMaxStatusText - std::min(j.dump().size() + 32, wire::kMaxStatusText);
  size_t listed_bytes = 0;
  for (const auto& [id, owned] : sessions_) {
    const Session* const session = owned.get();
    if (list.size() == kListedSessions) break;
    nlohmann::json s = {
        {"id", to_string(id)},
        {"state", session->state_name()},
        {"ranks", session->rank_count()},
        {"joined", session->joined_ranks().size()},
        {"reserved_bytes", session->reserved_bytes()},
        {"tenant", session->tenant()},
        {"served_bytes", session->served_bytes()},
        {"slow_ranks",
         slow_ranks(*session, sessions_.size() > kManySessions ? kOfManySessions : kListedSlowRanks)},
        {"held_ms", fair_.with([&](const FairShares&) { return session->share().held_for; }) / kMillisecond}};
    if (const auto m = session->missing(); m.since != 0) {
      s["waited_ms"] = (now_ - m.since) / kMillisecond;
      s["missing_ranks"] = m.count;
      s["missing"] =
          std::vector<uint32_t>(m.ranks.begin(), m.ranks.begin() + std::min<size_t>(m.count, m.ranks.size()));
    }
    if (session->survives()) {
      const auto absent = session->absent_ranks();
      s["roster_version"] = session->roster_version();
      s["absent_ranks"] = absent.size();
      s["absent"] = std::vector<uint32_t>(
          absent.begin(), absent.begin() + std::min<ptrdiff_t>(std::ssize(absent), wire::kMaxNamedRanks));
    }
    listed_bytes += s.dump().size() + 1;
    if (listed_bytes > most) break;
    list.push_back(std::move(s));
  }
  j["session_list"] = std::move(list);
  return j.dump();
}

}  // namespace sluice::reducer
