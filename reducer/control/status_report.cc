#include "reducer/control/status_report.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "reducer/control/control_loop.h"
#include "reducer/control/lane_status.h"
#include "transport/rdma/device_report.h"

namespace sluice::reducer {
namespace {

// The reply on a control connection must fit one frame. Sessions beyond that, or beyond kMaxListedSessions,
// are counted but not listed. With many sessions, fewer slow ranks are named per session.
constexpr size_t kMaxListedSessions = 32;
constexpr size_t kManySessions = 8;
constexpr size_t kMaxSlowRanks = 16, kMaxSlowRanksOfMany = 4;

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

// Hexadecimal as in the log, because JSON readers may keep only 53 bits of a number.
std::string id_text(uint64_t id) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64, id);
  return text.data();
}

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

nlohmann::json fair_status(const FairPool& pool) {
  return pool.with([](const FairShares& shares) {
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

nlohmann::json tenant_status(const SessionRegistry& sessions) {
  std::map<std::string, uint64_t> served_bytes;
  for (const auto& [id, session] : sessions.open())
    served_bytes[session->tenant()] += session->served_bytes();
  for (const auto& session : sessions.ending()) served_bytes[session->tenant()] += session->served_bytes();
  return sessions.tenants().status(served_bytes);
}

nlohmann::json wait_status(const SessionRegistry& sessions, Nanos now) {
  uint64_t waiting = 0;
  Nanos longest = 0;
  for (const auto& [id, session] : sessions.open()) {
    const Nanos since = session->missing().since;
    if (since == 0) continue;
    waiting += now - since >= kSecond ? 1 : 0;
    longest = std::max(longest, now - since);
  }
  return {{"sessions", waiting}, {"longest_ms", longest / kMillisecond}};
}

nlohmann::json session_status(const ControlLoop& loop, const Session& session, size_t max_slow_ranks) {
  const Nanos held = loop.fair().with([&](const FairShares&) { return session.share().held_time; });
  nlohmann::json s = {{"id", to_string(session.id())},
                      {"state", session.state_name()},
                      {"ranks", session.rank_count()},
                      {"joined", session.joined_ranks().size()},
                      {"reserved_bytes", session.reserved_bytes()},
                      {"tenant", session.tenant()},
                      {"served_bytes", session.served_bytes()},
                      {"slow_ranks", slow_ranks(session, max_slow_ranks)},
                      {"held_ms", held / kMillisecond}};
  if (const auto m = session.missing(); m.since != 0) {
    s["waited_ms"] = (loop.now() - m.since) / kMillisecond;
    s["missing_ranks"] = m.count;
    s["missing"] =
        std::vector<uint32_t>(m.ranks.begin(), m.ranks.begin() + std::min<size_t>(m.count, m.ranks.size()));
  }
  if (session.is_fault_tolerant()) {
    const auto absent = session.absent_ranks();
    s["roster_version"] = session.history_version();
    s["absent_ranks"] = absent.size();
    s["absent"] = std::vector<uint32_t>(
        absent.begin(), absent.begin() + std::min<ptrdiff_t>(std::ssize(absent), wire::kMaxNamedRanks));
  }
  return s;
}

// As many sessions as fit into `max_bytes`.
nlohmann::json session_list(const ControlLoop& loop, size_t max_bytes) {
  const auto& open = loop.sessions().open();
  const size_t max_slow_ranks = open.size() > kManySessions ? kMaxSlowRanksOfMany : kMaxSlowRanks;
  nlohmann::json list = nlohmann::json::array();
  size_t bytes = 0;
  for (const auto& [id, session] : open) {
    if (list.size() == kMaxListedSessions) break;
    nlohmann::json s = session_status(loop, *session, max_slow_ranks);
    bytes += s.dump().size() + 1;
    if (bytes > max_bytes) break;
    list.push_back(std::move(s));
  }
  return list;
}

}  // namespace

std::string make_status_json(const ControlLoop& loop) {
  const ControlCounters& counters = loop.counters();
  const SessionRegistry& sessions = loop.sessions();
  nlohmann::json j;
  j["version"] = SLUICE_VERSION;
  j["reducer_id"] = loop.id();
  j["id"] = id_text(loop.id());
  j["uptime_seconds"] = static_cast<double>(loop.uptime()) * 1e-9;
  j["draining"] = loop.is_draining();
  j["lanes"] = loop.lane_count();
  j["memory"] = {{"limit_bytes", loop.options().memory_limit}, {"reserved_bytes", sessions.reserved_bytes()}};

  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  j["cpu"] = {{"user_seconds", seconds(usage.ru_utime)}, {"system_seconds", seconds(usage.ru_stime)}};
  j["max_rss_bytes"] = uint64_t{1024} * static_cast<uint64_t>(usage.ru_maxrss);

  nlohmann::json closed = nlohmann::json::object();
  nlohmann::json refused = nlohmann::json::object();
  add_reasons(closed, counters.closed);
  add_reasons(refused, counters.refused);
  uint64_t lane_resumes = 0;
  for (const auto& thread : loop.lanes()) {
    const LaneCounters& c = thread->lane().counters();
    lane_resumes += c.resumes.get();
    add_reasons(closed, c.closed);
  }
  uint64_t rdma_pairs = 0;
  const auto devices = rdma_devices(rdma_pairs);
  add_lanes(j, loop.lanes(), rdma_pairs);
  j["closed"] = closed;    // connections, by reason
  j["refused"] = refused;  // joins, by reason
  j["connections"] = {{"accepted", counters.accepted}, {"open", loop.connection_count()}};
  j["tls"] = {{"agreed", counters.tls_agreed}, {"failed", counters.tls_failed}};
  j["rdma"] = {{"rails", loop.rdma().rails.names},
               {"why_none", loop.rdma().unavailable_reason},
               {"paired", counters.lanes_paired},
               {"on_tcp", counters.lanes_on_tcp},
               {"devices", devices}};
  const auto joining =
      std::ranges::count_if(sessions.open(), [](const auto& s) { return s.second->is_joining(); });
  j["sessions"] = {{"begun", counters.sessions_begun},
                   {"completed", counters.sessions_completed},
                   {"moved", counters.sessions_moved},
                   {"failed", counters.sessions_failed},
                   {"open", sessions.open().size()},
                   {"releasing", sessions.ending().size()},
                   {"joining", joining}};
  j["resumes"] = {{"control", counters.control_resumes}, {"lane", lane_resumes}};
  j["view_changes"] = {{"proposed", counters.views_proposed}, {"committed", counters.views_committed}};
  j["tenants"] = tenant_status(sessions);
  j["fair"] = fair_status(loop.fair());
  j["waits"] = wait_status(sessions, loop.now());
  const size_t used = std::min(j.dump().size() + 32, wire::kMaxStatusText);
  j["session_list"] = session_list(loop, wire::kMaxStatusText - used);
  return j.dump();
}

}  // namespace sluice::reducer
