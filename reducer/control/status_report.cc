// ControlLoop::status_json(): the status of a reducer, for `sluice status`, the HTTP port and the metrics.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>

#include "config/file_pattern.h"
#include "config/json.h"
#include "reducer/control/control_loop.h"
#include "reducer/control/session/session_status.h"
#include "transport/rdma/device_report.h"
#include "wire/dtype.h"

namespace sluice::reducer {
namespace {

// The reply on a control connection must fit one frame. Sessions beyond that, or beyond kMaxListedSessions,
// are counted but not listed. With many sessions, fewer slow ranks are named per session.
constexpr size_t kMaxListedSessions = 32;
constexpr size_t kManySessions = 8;
constexpr size_t kMaxSlowRanks = 16, kMaxSlowRanksOfMany = 4;

// JSON keys of the counters that are summed over the lanes.
constexpr std::pair<const char*, Counter LaneCounters::*> kSums[] = {
    {"frames_in", &LaneCounters::frames_in},
    {"frames_out", &LaneCounters::frames_out},
    {"bytes_copied", &LaneCounters::bytes_copied},
    {"bytes_copied_out", &LaneCounters::bytes_copied_out},
    {"rdma_work_requests", &LaneCounters::work_requests},
    {"rdma_doorbells", &LaneCounters::post_calls},
    {"rdma_completions", &LaneCounters::completions},
    {"receive_calls", &LaneCounters::receive_calls},
    {"send_calls", &LaneCounters::send_calls},
    {"chunks", &LaneCounters::chunks},
    {"send_blocked_ns", &LaneCounters::send_blocked_ns},
    {"turns", &LaneCounters::turns},
    {"busy_turns", &LaneCounters::busy_turns},
    {"results_resent", &LaneCounters::results_resent},
    {"contributions_dropped", &LaneCounters::contributions_dropped},
    {"view_moves", &LaneCounters::view_moves},
    {"kept_results", &LaneCounters::kept_results},
    {"sparse_bytes_saved", &LaneCounters::sparse_bytes_saved},
    {"packets_out", &LaneCounters::packets_out},
    {"lost_packets_out", &LaneCounters::lost_packets_out},
};

struct PayloadSum {
  uint64_t in = 0, out = 0;
  void add(const LaneCounters::PayloadBytes& bytes) noexcept {
    in += bytes.bytes_in.get();
    out += bytes.bytes_out.get();
  }
};

struct HistogramSum {
  std::array<uint64_t, DurationHistogram::kBuckets> buckets{};
  uint64_t sum_us = 0;
  void add(const DurationHistogram& of_lane) noexcept {
    for (size_t i = 0; i < buckets.size(); ++i) buckets[i] += of_lane.bucket(i);
    sum_us += of_lane.sum_us();
  }
};

nlohmann::json transport_status(const PayloadSum& bytes, uint64_t connections) {
  return {{"bytes_in", bytes.in}, {"bytes_out", bytes.out}, {"connections", connections}};
}

// In whole milliseconds, since the status of a thousand lanes must fit into one control frame.
double seconds(const Counter& nanoseconds) {
  const uint64_t milliseconds = nanoseconds.get() / kMillisecond;
  return 1e-3 * static_cast<double>(milliseconds);
}

// Adds the counts that are not 0 to `into`, by the name of the reason.
void add_reasons(nlohmann::json& into, const ReasonCounters& counts) {
  for (size_t i = 0; i < counts.size(); ++i) {
    const uint64_t n = counts[i].get();
    if (n == 0) continue;
    const std::string key(to_string(static_cast<Errc>(i)));
    into[key] = into.value(key, uint64_t{0}) + n;
  }
}

// Adds the sums of the lanes' counters to `status`. `rdma_pairs` is the number of open lane connections that
// use RDMA.
void add_lanes(nlohmann::json& status, std::span<const std::unique_ptr<LaneThread>> lanes,
               uint64_t rdma_pairs) {
  PayloadSum tcp, rdma;
  uint64_t connections = 0, straggler_max = 0, ring_full = 0;
  std::array<std::array<uint64_t, wire::kOpCount>, wire::kDTypeCount> folded{};
  std::array<std::array<double, wire::kOpCount>, wire::kDTypeCount> operations{};
  std::array<uint64_t, wire::kFindingKindCount> findings{};
  HistogramSum waits;
  std::array<HistogramSum, wire::kOpCount> durations;
  nlohmann::json data = nlohmann::json::object(), busy = nlohmann::json::array(), folding = busy;
  for (const auto& thread : lanes) {
    const LaneCounters& c = thread->lane().counters();
    for (const auto& [key, counter] : kSums) data[key] = data.value(key, uint64_t{0}) + (c.*counter).get();
    tcp.add(c.tcp);
    rdma.add(c.rdma);
    const uint64_t detached = c.detached.get();
    connections += std::max(c.attached.get(), detached) - detached;  // the two loads are not ordered
    for (size_t t = 0; t < folded.size(); ++t) {
      for (size_t o = 0; o < folded[t].size(); ++o) {
        folded[t][o] += c.folded[t][o].get();
        operations[t][o] += c.operations[t][o].get();
      }
    }
    for (size_t i = 0; i < findings.size(); ++i) findings[i] += c.findings[i].get();
    waits.add(c.straggler);
    for (size_t o = 0; o < durations.size(); ++o) durations[o].add(c.operation_durations[o]);
    straggler_max = std::max(straggler_max, c.straggler_us_max.get());
    ring_full += thread->lane().ring_full_count();
    busy.push_back(seconds(c.busy_ns));
    folding.push_back(seconds(c.fold_ns));
  }
  uint64_t all_folded = 0;
  double all_operations = 0;
  nlohmann::json by_type = nlohmann::json::object(), operations_by_type = by_type;
  for (size_t t = 0; t < folded.size(); ++t) {
    for (size_t o = 0; o < folded[t].size(); ++o) {
      const std::string type(to_string(static_cast<wire::DType>(t))), op(to_string(static_cast<wire::Op>(o)));
      if (folded[t][o] != 0) by_type[type][op] = folded[t][o];
      if (operations[t][o] != 0) operations_by_type[type][op] = operations[t][o];
      all_folded += folded[t][o];
      all_operations += operations[t][o];
    }
  }
  data["bytes_in"] = tcp.in + rdma.in;
  data["bytes_out"] = tcp.out + rdma.out;
  data["bytes_folded"] = all_folded;
  data["operations"] = all_operations;
  data["straggler_us"] = waits.sum_us;
  data["straggler_us_max"] = straggler_max;
  data["ring_full"] = ring_full;
  rdma_pairs = std::min(rdma_pairs, connections);
  status["data"] = std::move(data);
  status["transports"] = {{"tcp", transport_status(tcp, connections - rdma_pairs)},
                          {"rdma", transport_status(rdma, rdma_pairs)}};
  for (size_t i = 0; i < findings.size(); ++i) status["findings"][kFindingNames[i]] = findings[i];
  status["folded"] = std::move(by_type);
  status["operations"] = std::move(operations_by_type);
  status["straggler_waits"] = {{"first_bound_us", DurationHistogram::kFirstBoundUs},
                               {"counts", waits.buckets}};
  nlohmann::json& by_op = status["operation_durations"] = nlohmann::json::object();
  for (size_t o = 0; o < durations.size(); ++o) {
    if (std::ranges::count(durations[o].buckets, 0u) == DurationHistogram::kBuckets) continue;
    const std::string op(to_string(static_cast<wire::Op>(o)));
    by_op[op] = {{"first_bound_us", DurationHistogram::kFirstBoundUs},
                 {"counts", durations[o].buckets},
                 {"sum_us", durations[o].sum_us}};
  }
  status["lane_busy_seconds"] = std::move(busy);
  status["lane_fold_seconds"] = std::move(folding);
}

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
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

nlohmann::json histogram_status(const DurationHistogram& durations) {
  HistogramSum sum;
  sum.add(durations);
  return {
      {"first_bound_us", DurationHistogram::kFirstBoundUs}, {"counts", sum.buckets}, {"sum_us", sum.sum_us}};
}

nlohmann::json fair_status(const FairPool& pool) {
  return pool.with([](const FairShares& shares) {
    uint64_t active = 0, held = 0, modest = 0;
    for (const FairShares::Member* m : shares.engaged()) {
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

// What one job may take; null where it may take all.
nlohmann::json job_budgets(const JobBudgets& budgets) {
  nlohmann::json j = {{"refused", budgets.refused()}};
  using Resource = JobBudgets::Resource;
  for (const auto& [name, resource] : {std::pair("job_connections", Resource::kConnections),
                                       std::pair("job_lane_connections", Resource::kLanes),
                                       std::pair("job_memory_bytes", Resource::kMemory)}) {
    const uint64_t limit = budgets.limit(resource);
    j[name] = limit == UINT64_MAX ? nlohmann::json() : nlohmann::json(limit);
  }
  return j;
}

// Sessions get at least the other half of the room.
void add_models(nlohmann::json& status, const ReducerOptions& options) {
  status["models"] = nlohmann::json::array();
  if (!options.models_status) return;
  const size_t used = std::min(config::json_text(status).size() + 256, wire::kMaxStatusText);
  auto models = config::parse_json(options.models_status((wire::kMaxStatusText - used) / 2));
  if (models.is_object()) status.update(models);
}

// As many sessions as fit into `max_bytes`.
nlohmann::json session_list(ControlLoop& loop, size_t max_bytes) {
  const auto& open = loop.sessions().open();
  const size_t max_slow_ranks = open.size() > kManySessions ? kMaxSlowRanksOfMany : kMaxSlowRanks;
  nlohmann::json list = nlohmann::json::array();
  size_t bytes = 0;
  for (const auto& [id, session] : open) {
    if (list.size() == kMaxListedSessions) break;
    nlohmann::json s = session_status(loop, *session, max_slow_ranks);
    bytes += config::json_text(s).size() + 1;
    if (bytes > max_bytes) break;
    list.push_back(std::move(s));
  }
  return list;
}

}  // namespace

std::string ControlLoop::status_json() {
  now_ = std::max(now_, started_);
  ControlLoop& loop = *this;
  const ControlCounters& counters = loop.counters();
  SessionRegistry& sessions = loop.sessions();
  nlohmann::json j;
  j["version"] = SLUICE_VERSION;
  j["reducer_id"] = loop.id();
  j["id"] = id_text(loop.id());
  j["host"] = config::host_name();
  j["address"] = address_;
  j["pool"] = options_.pool_name;
  j["uptime_seconds"] = static_cast<double>(loop.uptime()) * 1e-9;
  j["draining"] = loop.is_draining();
  j["lanes"] = loop.lane_count();
  j["link_rate"] = loop.options().link_rate;
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
  j["data"]["packets_in"] = counters.packets_in;
  j["data"]["lost_packets_in"] = counters.lost_packets_in;
  j["closed"] = closed;    // connections, by reason
  j["refused"] = refused;  // joins, by reason
  const ControlLoop::ConnectionLimits limits = loop.connection_limits();
  j["connections"] = {{"accepted", counters.accepted},
                      {"open", loop.connection_count()},
                      {"limit", limits.all},
                      {"unproved", loop.unproved().size()},
                      {"unproved_limit", limits.unproved}};
  j["budgets"] = job_budgets(loop.budgets());
  j["tls"] = {{"agreed", counters.tls_agreed}, {"failed", counters.tls_failed}};
  j["rdma"] = {{"rails", loop.rdma().rails.names},
               {"why_none", loop.rdma().unavailable_reason},
               {"paired", counters.lanes_paired},
               {"on_tcp", counters.lanes_on_tcp},
               {"devices", devices}};
  const SessionTotals& totals = sessions.totals();
  j["sessions"] = {{"begun", counters.sessions_begun},
                   {"completed", counters.sessions_completed},
                   {"moved", counters.sessions_moved},
                   {"failed", counters.sessions_failed},
                   {"open", sessions.open().size()},
                   {"joining", totals.joining},
                   {"active", sessions.open().size() - std::min(totals.joining, sessions.open().size())},
                   {"ending", sessions.ending().size()}};
  const JoinOutcomes& outcomes = sessions.outcomes();
  j["outcomes"] = {
      {"kept", outcomes.kept()}, {"limit", JoinOutcomes::kMaxKept}, {"dropped", outcomes.dropped()}};
  j["resumes"] = {{"control", counters.control_resumes}, {"lane", lane_resumes}};
  j["view_changes"] = {{"proposed", counters.views_proposed}, {"committed", counters.views_committed}};
  j["tenants"] = sessions.tenants().status(totals.served_bytes);
  j["fair"] = fair_status(loop.fair());
  j["waits"] = {{"sessions", totals.waiting}, {"longest_ms", totals.longest_wait / kMillisecond}};
  j["stalls"] = {{"ranks", totals.stalled_ranks}, {"longest_ms", totals.longest_stall / kMillisecond}};
  j["control"] = {{"turns", histogram_status(counters.turns)},
                  {"longest_turn_us", counters.longest_turn_us},
                  {"session_ticks", counters.session_ticks}};
  add_models(j, loop.options());
  const size_t used = std::min(config::json_text(j).size() + 32, wire::kMaxStatusText);
  j["session_list"] = session_list(loop, wire::kMaxStatusText - used);
  return config::json_text(j);
}

}  // namespace sluice::reducer
