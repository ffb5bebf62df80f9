#include "cli/commands/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "config/printable_text.h"
#include "config/sizes.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::json;
using Pointer = nlohmann::json_pointer<std::string>;

constexpr size_t kMaxSlowRanks = 3;
constexpr double kShownLossShare = 0.001;  // fewer losses are part of congestion control

// Keys of findings in the status, most severe first, and their texts.
constexpr std::array<const char*, 3> kFindingKinds = {"/non_finite", "/outlier", "/zeros"};
constexpr std::array<const char*, 3> kFindingTexts = {"NaN or infinite", "outliers", "only zeros"};

// Returns 0 for a missing value and for a value that is not a number, because the status comes from another
// process.
double number(const Json& status, const char* pointer) {
  try {
    const Json& value = status.at(Pointer(pointer));
    return value.is_number() ? value.get<double>() : 0;
  } catch (const Json::exception&) {
    return 0;
  }
}

std::string text(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_string()) return {};
  return config::printable(found->get<std::string>(), SIZE_MAX);
}

const Json& list(const Json& object, const char* key) {
  static const Json empty = Json::array();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : empty;
}

const Json& object(const Json& status, const char* key) {
  static const Json empty = Json::object();
  const auto found = status.is_object() ? status.find(key) : status.end();
  return found != status.end() && found->is_object() ? *found : empty;
}

std::string truncated(std::string text, size_t max) {
  if (text.size() > max) text = text.substr(0, max - 1) + "~";
  return text;
}

std::string milliseconds_text(double ms) {
  return ms < 1000    ? fmt::format("{:.0f} ms", ms)
         : ms < 120e3 ? fmt::format("{:.1f} s", ms / 1000)
                      : fmt::format("{:.0f} min", ms / 60e3);
}

// Two samples of one reducer.
struct ReducerSamples {
  const TopSample::Reducer* previous = nullptr;  // null: no rates
  const TopSample::Reducer* current = nullptr;

  [[nodiscard]] double seconds() const { return 1e-9 * static_cast<double>(current->at - previous->at); }
  [[nodiscard]] double rate(const char* pointer) const {
    if (previous == nullptr) return 0;
    return std::max(0.0, number(current->status, pointer) - number(previous->status, pointer)) / seconds();
  }
  [[nodiscard]] double cpus() const { return rate("/cpu/user_seconds") + rate("/cpu/system_seconds"); }
  [[nodiscard]] double busy() const {
    if (previous == nullptr) return 0;
    double sum = 0;
    for (const Json& lane : list(current->status, "lane_busy_seconds"))
      sum += lane.is_number() ? lane.get<double>() : 0;
    for (const Json& lane : list(previous->status, "lane_busy_seconds"))
      sum -= lane.is_number() ? lane.get<double>() : 0;
    return std::clamp(sum / seconds() / std::max(1.0, number(current->status, "/lanes")), 0.0, 1.0);
  }
};

std::vector<ReducerSamples> match_samples(const TopSample& previous, const TopSample& current) {
  std::vector<ReducerSamples> out;
  for (const TopSample::Reducer& r : current.reducers) {
    ReducerSamples samples{.current = &r};
    const auto same = std::ranges::find(previous.reducers, r.name, &TopSample::Reducer::name);
    if (same != previous.reducers.end() && same->status.is_object() && r.status.is_object() &&
        r.at > same->at && same->status.value("reducer_id", Json()) == r.status.value("reducer_id", Json())) {
      samples.previous = &*same;
    }
    out.push_back(samples);
  }
  return out;
}

// A session, aggregated over its reducers.
struct Session {
  std::string tenant, state;
  double ranks = 0, joined = 0, reducers = 0;
  double bytes = 0;  // per second and direction
  double waited_ms = 0;
  double missing_ranks = 0;
  std::vector<uint32_t> missing;  // at the reducer with the longest wait
  struct SlowRank {
    double total_ms = 0;
    double share = 0;  // of the time between the samples
  };
  std::map<uint32_t, SlowRank> slow;  // by rank; the maximum over the reducers
  // By rank: chunks with findings (docs/guides/health.md), by kind; the sum over the reducers.
  std::map<uint32_t, std::array<double, 3>> findings;
  // The worst path: lost share or milliseconds of the stall, rank; and the reducer.
  std::pair<std::pair<double, uint32_t>, std::string> losses, stall;
};

uint32_t rank_of(const Json& value) {
  return value.is_number() ? static_cast<uint32_t>(std::clamp(value.get<double>(), 0.0, double{UINT32_MAX}))
                           : 0;
}

// Returns the rank of an entry of slow_ranks or of health's ranks.
uint32_t slow_rank(const Json& slow) {
  const auto found = slow.is_object() ? slow.find("rank") : slow.end();
  return rank_of(found != slow.end() ? *found : Json());
}

// Returns the entry of the list that has the value, or an empty object.
const Json& find_entry(const TopSample::Reducer* reducer, const char* entries, const char* key,
                       const std::string& value) {
  static const Json empty = Json::object();
  if (reducer == nullptr) return empty;
  for (const Json& entry : list(reducer->status, entries)) {
    if (text(entry, key) == value) return entry;
  }
  return empty;
}

// Adds what the network does to the lane connections of a session at one reducer, since the last sample.
void add_path_status(Session& into, const Json& s, const Json& previous, const std::string& reducer) {
  for (const Json& rank : list(s, "losses")) {
    double packets = number(rank, "/packets"), lost = number(rank, "/lost_packets");
    for (const Json& before : list(previous, "losses")) {
      if (slow_rank(before) != slow_rank(rank)) continue;
      packets -= number(before, "/packets"), lost -= number(before, "/lost_packets");
    }
    const std::pair share{packets > 0 ? std::clamp(lost / packets, 0.0, 1.0) : 0, slow_rank(rank)};
    if (share.first >= kShownLossShare) into.losses = std::max(into.losses, {share, reducer});
  }
  for (const Json& rank : list(s, "stalls"))
    into.stall = std::max(into.stall, {{number(rank, "/stalled_ms"), slow_rank(rank)}, reducer});
}

// Adds the status of a session at one reducer.
void add_session_status(Session& into, const Json& s, const Json& previous, double seconds) {
  into.tenant = text(s, "tenant");
  if (into.state != "joining") into.state = text(s, "state");  // joining at any reducer is joining
  into.ranks = std::max(into.ranks, number(s, "/ranks"));
  into.joined = into.reducers == 0 ? number(s, "/joined") : std::min(into.joined, number(s, "/joined"));
  ++into.reducers;
  if (seconds > 0 && !previous.empty())
    into.bytes += std::max(0.0, number(s, "/served_bytes") - number(previous, "/served_bytes")) / seconds;
  if (const double waited = number(s, "/waited_ms"); waited > into.waited_ms) {
    into.waited_ms = waited;
    into.missing_ranks = number(s, "/missing_ranks");
    into.missing.clear();
    for (const Json& rank : list(s, "missing")) into.missing.push_back(rank_of(rank));
  }
  for (const Json& health : list(object(s, "health"), "ranks")) {
    const Json& counts = object(health, "findings");
    std::array<double, 3>& known = into.findings[slow_rank(health)];
    for (size_t kind = 0; kind < kFindingKinds.size(); ++kind)
      known[kind] += number(counts, kFindingKinds[kind]);
  }
  for (const Json& slow : list(s, "slow_ranks")) {
    const uint32_t rank = slow_rank(slow);
    const double total = number(slow, "/waited_ms");
    double previous_total = 0;
    for (const Json& previous_slow : list(previous, "slow_ranks")) {
      if (slow_rank(previous_slow) == rank) previous_total = number(previous_slow, "/waited_ms");
    }
    Session::SlowRank& known = into.slow[rank];
    known.total_ms = std::max(known.total_ms, total);
    if (seconds > 0 && !previous.empty())
      known.share = std::max(known.share, std::clamp(1e-3 * (total - previous_total) / seconds, 0.0, 1.0));
  }
}

// Returns "rank 5: NaN or infinite in 3 chunks", or nothing without findings.
std::string sickest_rank_text(const Session& s) {
  const auto worst = std::ranges::max_element(s.findings, {}, [](const auto& f) { return f.second; });
  if (worst == s.findings.end()) return {};
  for (size_t kind = 0; kind < kFindingKinds.size(); ++kind) {
    if (worst->second[kind] == 0) continue;
    return fmt::format("rank {}: {} in {:.0f} chunks", worst->first, kFindingTexts[kind],
                       worst->second[kind]);
  }
  return {};
}

// Returns "rank 3 31% (12.4 s), rank 0 2% (1.1 s)".
std::string slow_ranks_text(const Session& s) {
  std::vector<std::pair<uint32_t, Session::SlowRank>> order(s.slow.begin(), s.slow.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return std::pair(a.second.share, a.second.total_ms) > std::pair(b.second.share, b.second.total_ms);
  });
  std::string out;
  for (size_t i = 0; i < std::min(order.size(), kMaxSlowRanks); ++i) {
    const auto& [rank, slow] = order[i];
    out += fmt::format("{}rank {} {:.0f}% ({})", i == 0 ? "" : ", ", rank, 100 * slow.share,
                       milliseconds_text(slow.total_ms));
  }
  return out;
}

std::string waiting_text(const Session& s) {
  if (s.state == "joining" && s.joined < s.ranks)
    return fmt::format("{:.0f} ranks to join", s.ranks - s.joined);
  if (s.waited_ms < 1000) return "-";
  std::string out = milliseconds_text(s.waited_ms) + " for";
  for (size_t i = 0; i < std::min<size_t>(s.missing.size(), 4); ++i) out += fmt::format(" {}", s.missing[i]);
  if (s.missing_ranks > 4) out += fmt::format(" and {:.0f} more", s.missing_ranks - 4);
  return out;
}

double sum(const std::vector<ReducerSamples>& reducers, const char* pointer) {
  double out = 0;
  for (const ReducerSamples& r : reducers) out += number(r.current->status, pointer);
  return out;
}

// A model, aggregated over its reducers. Only the leader's makes steps and answers pushes.
struct Model {
  std::string mode, unavailable;
  double version = 0, reducers = 0, steps = 0, pushes = 0, not_contained = 0, in = 0, out = 0;
  double staged = 0, memory = 0, step_age_ms = std::numeric_limits<double>::max();
};

double sum(const Json& counts) {
  double all = 0;
  for (const Json& count : counts) all += count.is_number() ? count.get<double>() : 0;
  return all;
}

void add_model_status(Model& into, const Json& m, const Json& previous, double seconds) {
  const auto rate = [&](double now, double before) {
    return seconds > 0 && !previous.empty() ? std::max(0.0, now - before) / seconds : 0;
  };
  const auto rate_of = [&](const char* key) { return rate(number(m, key), number(previous, key)); };
  into.mode = text(m, "mode");
  if (const std::string reason = text(m, "unavailable"); !reason.empty()) into.unavailable = reason;
  ++into.reducers;
  into.version = std::max(into.version, number(m, "/version"));
  into.steps += rate_of("/steps");
  const double pushes = rate(sum(object(m, "pushes")), sum(object(previous, "pushes")));
  into.pushes += pushes;
  into.not_contained += std::max(0.0, pushes - rate_of("/pushes/contained"));
  into.in += rate_of("/delta_bytes");
  into.out += rate_of("/pull_bytes") + rate_of("/copy_bytes");
  into.staged = std::max(into.staged, number(m, "/staged"));
  into.memory += number(m, "/memory_bytes");
  into.step_age_ms = std::min(into.step_age_ms, number(m, "/step_age_ms"));
}

// Nothing without models.
std::vector<std::string> model_lines(const std::vector<ReducerSamples>& reducers) {
  std::map<std::string, Model> models;
  for (const ReducerSamples& r : reducers) {
    for (const Json& m : list(r.current->status, "models")) {
      const std::string name = text(m, "name");
      add_model_status(models[name], m, find_entry(r.previous, "models", "name", name),
                       r.previous == nullptr ? 0 : r.seconds());
    }
  }
  if (models.empty()) return {};
  std::vector<std::string> lines = {
      "", fmt::format("{:<20} {:<8} {:>4} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>6} {:>10}  {}", "MODEL",
                      "MODE", "RED", "VERSION", "STEPS/s", "PUSHES/s", "OTHER/s", "IN Gb/s", "OUT Gb/s",
                      "STAGED", "MEMORY", "LAST STEP")};
  for (const auto& [name, m] : models) {
    lines.push_back(fmt::format(
        "{:<20} {:<8} {:>4.0f} {:>9.0f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>9.2f} {:>6.0f} {:>10}  {}",
        truncated(name, 20), m.mode, m.reducers, m.version, m.steps, m.pushes, m.not_contained, 8e-9 * m.in,
        8e-9 * m.out, m.staged, config::rounded_size_text(m.memory), milliseconds_text(m.step_age_ms)));
    if (!m.unavailable.empty()) lines.push_back("           UNAVAILABLE: " + m.unavailable);
  }
  return lines;
}

double error_count(const Json& status) {
  double errors = 0;
  for (const auto& [reason, count] : object(status, "closed").items()) {
    const bool is_error =
        reason.starts_with("bad_") || reason == "slot_not_granted" || reason == "unexpected_message";
    if (is_error && count.is_number()) errors += count.get<double>();
  }
  return errors;
}

std::vector<std::string> pool_lines(const std::vector<ReducerSamples>& reducers, size_t sessions) {
  double in = 0, out = 0, operations = 0, cpus = 0;
  size_t reachable = 0, draining = 0;
  for (const ReducerSamples& r : reducers) {
    const Json& status = r.current->status;
    reachable += status.is_object() ? 1 : 0;
    draining += status.is_object() && status.value("draining", Json()) == Json(true) ? 1 : 0;
    in += r.rate("/data/bytes_in");
    out += r.rate("/data/bytes_out");
    operations += r.rate("/data/operations");
    cpus += r.cpus();
  }
  const double limit = sum(reducers, "/memory/limit_bytes"), used = sum(reducers, "/memory/reserved_bytes");
  return {fmt::format(
              "pool: {} of {} reducers{}, {} sessions; in {:.2f} Gb/s, out {:.2f} Gb/s, {:.1f} operations/s",
              reachable, reducers.size(), draining == 0 ? "" : fmt::format(" ({} draining)", draining),
              sessions, 8e-9 * in, 8e-9 * out, operations),
          fmt::format("memory {} of {}; {:.2f} CPUs", config::rounded_size_text(used),
                      config::rounded_size_text(limit), cpus)};
}

std::string reducer_line(const ReducerSamples& r) {
  const Json& status = r.current->status;
  if (!status.is_object()) {
    return fmt::format("{:<26} DOWN      {}", truncated(r.current->name, 26),
                       config::printable(r.current->error, SIZE_MAX));
  }
  const bool draining = status.value("draining", Json()) == Json(true);
  const double packets = r.rate("/data/packets_in") + r.rate("/data/packets_out");
  const double lost = r.rate("/data/lost_packets_in") + r.rate("/data/lost_packets_out");
  return fmt::format(
      "{:<26} {:<8} {:>5.0f} {:>6.0f} {:>9.2f} {:>9.2f} {:>5.1f}% {:>5.0f}% {:>5.2f} {:>10} {:>7.0f} "
      "{:>7.0f}",
      truncated(r.current->name, 26), draining ? "draining" : "ready", number(status, "/sessions/open"),
      number(status, "/transports/tcp/connections") + number(status, "/transports/rdma/connections"),
      8e-9 * r.rate("/data/bytes_in"), 8e-9 * r.rate("/data/bytes_out"),
      packets > 0 ? 100 * std::min(lost / packets, 1.0) : 0, 100 * r.busy(), r.cpus(),
      config::rounded_size_text(number(status, "/memory/reserved_bytes")), error_count(status),
      sum(object(status, "refused")));
}

}  // namespace

std::string top_text(const TopSample& previous, const TopSample& current, size_t columns, size_t lines) {
  const std::vector<ReducerSamples> reducers = match_samples(previous, current);
  std::map<std::string, Session> sessions;
  for (const ReducerSamples& r : reducers) {
    for (const Json& s : list(r.current->status, "session_list")) {
      const std::string id = text(s, "id");
      const Json& previous_status = find_entry(r.previous, "session_list", "id", id);
      add_session_status(sessions[id], s, previous_status, r.previous == nullptr ? 0 : r.seconds());
      add_path_status(sessions[id], s, previous_status, r.current->name);
    }
  }
  std::vector<std::string> all = pool_lines(reducers, sessions.size());
  all.emplace_back();
  all.push_back(fmt::format("{:<26} {:<8} {:>5} {:>6} {:>9} {:>9} {:>6} {:>6} {:>5} {:>10} {:>7} {:>7}",
                            "REDUCER", "STATE", "SESS", "LANES", "IN Gb/s", "OUT Gb/s", "LOST", "BUSY",
                            "CPUs", "MEMORY", "ERRORS", "REFUSED"));
  for (const ReducerSamples& r : reducers) all.push_back(reducer_line(r));
  all.emplace_back();
  all.push_back(fmt::format("{:<10} {:<16} {:<8} {:>6} {:>4} {:>9}  {:<24} {}", "SESSION", "TENANT", "STATE",
                            "RANKS", "RED", "Gb/s", "WAITS",
                            "SLOWEST: share of the time waited for (total)"));
  std::vector<std::pair<std::string, const Session*>> order;
  for (const auto& [id, session] : sessions) order.emplace_back(id, &session);
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& s) { return s.second->bytes; });
  for (const auto& [id, s] : order) {
    all.push_back(fmt::format("{:<10} {:<16} {:<8} {:>6.0f} {:>4.0f} {:>9.2f}  {:<24} {}", truncated(id, 10),
                              truncated(s->tenant, 16), s->state, s->ranks, s->reducers, 8e-9 * s->bytes,
                              waiting_text(*s), slow_ranks_text(*s)));
    if (const std::string sickest = sickest_rank_text(*s); !sickest.empty())
      all.push_back("           SICK: " + sickest);
    if (const auto& [path, reducer] = s->losses; path.first > 0)
      all.push_back(fmt::format("           LOST: {:.1f}% of packets between rank {} and {}",
                                100 * path.first, path.second, reducer));
    if (const auto& [path, reducer] = s->stall; path.first > 0)
      all.push_back(
          fmt::format("           STALLED: no byte acknowledged between rank {} and {} for {}: check "
                      "the MTU of the path",
                      path.second, reducer, milliseconds_text(path.first)));
  }
  if (order.empty()) all.emplace_back("no sessions");
  for (std::string& line : model_lines(reducers)) all.push_back(std::move(line));
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), lines); ++i) {
    const bool is_cut = i + 1 == lines && all.size() > lines;
    out += (is_cut ? fmt::format("... {} more lines", all.size() - i) : all[i]).substr(0, columns) + '\n';
  }
  return out;
}

}  // namespace sluice::cli
