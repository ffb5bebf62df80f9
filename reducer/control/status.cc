// What a reducer says of itself. Keys are documented in docs/operations.md.
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reducer/control/conductor.h"
#include "transport/rdma/device_report.h"

namespace sluice::reducer {
namespace {

// A reply must fit one control frame; sessions beyond what does, or beyond these, are counted, not listed.
constexpr size_t kListedSessions = 32;

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

void add_reasons(nlohmann::json& into, const std::array<Counter, kErrcSlots>& counts) {
  for (size_t i = 0; i < kErrcSlots; ++i) {
    const uint64_t n = counts[i].get();
    if (n == 0) continue;
    const std::string key(to_string(static_cast<Errc>(i)));
    into[key] = into.value(key, uint64_t{0}) + n;
  }
}

nlohmann::json rdma_devices() {
  nlohmann::json all = nlohmann::json::array();
  for (const auto& d : transport::rdma::device_reports()) {
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
  nlohmann::json sum = nlohmann::json::object();
  const auto add = [&sum](const char* key, const Counter& c) {
    sum[key] = sum.value(key, uint64_t{0}) + c.get();
  };
  uint64_t straggler_max = 0;
  uint64_t ring_full = 0;
  uint64_t lane_resumes = 0;
  for (const auto& thread : lanes_) {
    const LaneCounters& c = thread->lane().counters();
    add("frames_in", c.frames_in);
    add("frames_out", c.frames_out);
    add("bytes_in", c.bytes_in);
    add("bytes_out", c.bytes_out);
    add("bytes_copied", c.bytes_copied);
    add("bytes_copied_out", c.bytes_copied_out);
    add("rdma_work_requests", c.work_requests);
    add("rdma_doorbells", c.doorbells);
    add("rdma_completions", c.completions);
    add("receive_calls", c.receive_calls);
    add("send_calls", c.send_calls);
    add("chunks", c.chunks);
    add("bytes_folded", c.bytes_folded);
    add("straggler_us", c.straggler_us);
    add("turns", c.turns);
    add("busy_turns", c.busy_turns);
    add("results_resent", c.results_resent);
    add("contributions_dropped", c.contributions_dropped);
    add("view_moves", c.view_moves);
    add("kept_results", c.kept_results);
    lane_resumes += c.resumes.get();
    straggler_max = std::max(straggler_max, c.straggler_us_max.get());
    ring_full += thread->lane().ring_full_count();
    add_reasons(closed, c.closed);
  }
  sum["straggler_us_max"] = straggler_max;
  sum["ring_full"] = ring_full;
  j["data"] = sum;
  j["closed"] = closed;    // connections, by reason
  j["refused"] = refused;  // joins, by reason
  j["connections"] = {{"accepted", accepted_}, {"open", connections_.size()}};
  j["tls"] = {{"agreed", tls_counts_.agreed}, {"failed", tls_counts_.failed}};
  j["rdma"] = {{"rails", rdma_.rails.names},
               {"why_none", rdma_.why_none},
               {"paired", pair_counts_.paired},
               {"on_tcp", pair_counts_.on_tcp},
               {"devices", rdma_devices()}};
  j["sessions"] = {{"begun", sessions_begun_}, {"completed", sessions_completed_},
                   {"moved", sessions_moved_}, {"failed", sessions_failed_},
                   {"open", sessions_.size()}, {"releasing", ending_.size()}};
  j["resumes"] = {{"control", survival_.control_resumes}, {"lane", lane_resumes}};
  j["view_changes"] = {{"proposed", survival_.views_proposed}, {"committed", survival_.views_committed}};
  std::map<std::string, uint64_t> tenant_bytes;
  for (const auto& [id, session] : sessions_) tenant_bytes[session->tenant()] += session->served_bytes();
  for (const auto& session : ending_) tenant_bytes[session->tenant()] += session->served_bytes();
  j["tenants"] = tenants_.status(tenant_bytes);
  j["fair"] = fair_status();
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
