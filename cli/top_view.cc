#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace sluice::cli {
namespace {

using Json = nlohmann::json;
using Pointer = nlohmann::json_pointer<std::string>;

constexpr size_t kSlowShown = 3;

// Another's words: what is not there, or is no number, is 0.
double number(const Json& status, const char* where) {
  try {
    const Json& value = status.at(Pointer(where));
    return value.is_number() ? value.get<double>() : 0;
  } catch (const Json::exception&) {
    return 0;
  }
}

std::string text(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  std::string words = found != object.end() && found->is_string() ? found->get<std::string>() : "";
  std::ranges::replace_if(
      words, [](char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

const Json& list(const Json& object, const char* key) {
  static const Json none = Json::array();
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? *found : none;
}

const Json& object(const Json& status, const char* key) {
  static const Json none = Json::object();
  const auto found = status.is_object() ? status.find(key) : status.end();
  return found != status.end() && found->is_object() ? *found : none;
}

std::string cut(std::string words, size_t most) {
  if (words.size() > most) words = words.substr(0, most - 1) + "~";
  return words;
}

std::string size_words(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string time_words(double ms) {
  return ms < 1000    ? fmt::format("{:.0f} ms", ms)
         : ms < 120e3 ? fmt::format("{:.1f} s", ms / 1000)
                      : fmt::format("{:.0f} min", ms / 60e3);
}

// One reducer, then and now.
struct Pair {
  const TopSample::Reducer* before = nullptr;  // null: no rates
  const TopSample::Reducer* now = nullptr;

  [[nodiscard]] double seconds() const { return 1e-9 * static_cast<double>(now->at - before->at); }
  [[nodiscard]] double rate(const char* where) const {
    if (before == nullptr) return 0;
    return std::max(0.0, number(now->status, where) - number(before->status, where)) / seconds();
  }
  [[nodiscard]] double cpus() const { return rate("/cpu/user_seconds") + rate("/cpu/system_seconds"); }
  [[nodiscard]] double busy() const {
    if (before == nullptr) return 0;
    double sum = 0;
    for (const Json& lane : list(now->status, "lane_busy_seconds"))
      sum += lane.is_number() ? lane.get<double>() : 0;
    for (const Json& lane : list(before->status, "lane_busy_seconds"))
      sum -= lane.is_number() ? lane.get<double>() : 0;
    return std::clamp(sum / seconds() / std::max(1.0, number(now->status, "/lanes")), 0.0, 1.0);
  }
};

std::vector<Pair> pairs_of(const TopSample& before, const TopSample& now) {
  std::vector<Pair> pairs;
  for (const TopSample::Reducer& r : now.reducers) {
    Pair pair{.now = &r};
    const auto same = std::ranges::find(before.reducers, r.name, &TopSample::Reducer::name);
    if (same != before.reducers.end() && same->status.is_object() && r.status.is_object() &&
        r.at > same->at && same->status.value("reducer_id", Json()) == r.status.value("reducer_id", Json())) {
      pair.before = &*same;
    }
    pairs.push_back(pair);
  }
  return pairs;
}

// A session as all its reducers have it.
struct Session {
  std::string tenant, state;
  double ranks = 0, joined = 0, reducers = 0;
  double bytes = 0;  // a second, each way
  double waited_ms = 0;
  double missing_ranks = 0;
  std::vector<uint32_t> missing;  // of the reducer that waits longest
  struct Slow {
    double total_ms = 0;
    double part = 0;  // of the time between the samples
  };
  std::map<uint32_t, Slow> slow;  // by rank; of several reducers the one that waited longest
};

uint32_t rank_of(const Json& value) {
  return value.is_number() ? static_cast<uint32_t>(std::clamp(value.get<double>(), 0.0, double{UINT32_MAX}))
                           : 0;
}

// Of an entry of slow_ranks.
uint32_t rank_in(const Json& slow) {
  const auto found = slow.is_object() ? slow.find("rank") : slow.end();
  return rank_of(found != slow.end() ? *found : Json());
}

const Json& session_of(const TopSample::Reducer* reducer, const std::string& id) {
  static const Json none = Json::object();
  if (reducer == nullptr) return none;
  for (const Json& s : list(reducer->status, "session_list")) {
    if (text(s, "id") == id) return s;
  }
  return none;
}

void add(Session& into, const Json& s, const Json& earlier, double seconds) {
  into.tenant = text(s, "tenant");
  if (into.state != "joining") into.state = text(s, "state");  // one that waits for a rank there waits
  into.ranks = std::max(into.ranks, number(s, "/ranks"));
  into.joined = into.reducers == 0 ? number(s, "/joined") : std::min(into.joined, number(s, "/joined"));
  ++into.reducers;
  if (seconds > 0 && !earlier.empty())
    into.bytes += std::max(0.0, number(s, "/served_bytes") - number(earlier, "/served_bytes")) / seconds;
  if (const double waited = number(s, "/waited_ms"); waited > into.waited_ms) {
    into.waited_ms = waited;
    into.missing_ranks = number(s, "/missing_ranks");
    into.missing.clear();
    for (const Json& rank : list(s, "missing")) into.missing.push_back(rank_of(rank));
  }
  for (const Json& slow : list(s, "slow_ranks")) {
    const uint32_t rank = rank_in(slow);
    const double total = number(slow, "/waited_ms");
    double then = 0;
    for (const Json& was : list(earlier, "slow_ranks")) {
      if (rank_in(was) == rank) then = number(was, "/waited_ms");
    }
    Session::Slow& known = into.slow[rank];
    known.total_ms = std::max(known.total_ms, total);
    if (seconds > 0 && !earlier.empty())
      known.part = std::max(known.part, std::clamp(1e-3 * (total - then) / seconds, 0.0, 1.0));
  }
}

// "rank 3 31% (12.4 s), rank 0 2% (1.1 s)"
std::string slow_words(const Session& s) {
  std::vector<std::pair<uint32_t, Session::Slow>> order(s.slow.begin(), s.slow.end());
  std::ranges::stable_sort(order, [](const auto& a, const auto& b) {
    return std::pair(a.second.part, a.second.total_ms) > std::pair(b.second.part, b.second.total_ms);
  });
  std::string words;
  for (size_t i = 0; i < std::min(order.size(), kSlowShown); ++i) {
    const auto& [rank, slow] = order[i];
    words += fmt::format("{}rank {} {:.0f}% ({})", i == 0 ? "" : ", ", rank, 100 * slow.part,
                         time_words(slow.total_ms));
  }
  return words;
}

std::string waiting_words(const Session& s) {
  if (s.state == "joining" && s.joined < s.ranks)
    return fmt::format("{:.0f} ranks to join", s.ranks - s.joined);
  if (s.waited_ms < 1000) return "-";
  std::string words = time_words(s.waited_ms) + " for";
  for (size_t i = 0; i < std::min<size_t>(s.missing.size(), 4); ++i)
    words += fmt::format(" {}", s.missing[i]);
  if (s.missing_ranks > 4) words += fmt::format(" and {:.0f} more", s.missing_ranks - 4);
  return words;
}

double sum(const std::vector<Pair>& pairs, const char* where) {
  double all = 0;
  for (const Pair& p : pairs) all += number(p.now->status, where);
  return all;
}

double errors_of(const Json& status) {
  double errors = 0;
  for (const auto& [reason, count] : object(status, "closed").items()) {
    const bool bad =
        reason.starts_with("bad_") || reason == "slot_not_granted" || reason == "unexpected_message";
    if (bad && count.is_number()) errors += count.get<double>();
  }
  return errors;
}

double refusals_of(const Json& status) {
  double refusals = 0;
  for (const auto& [reason, count] : object(status, "refused").items())
    refusals += count.is_number() ? count.get<double>() : 0;
  return refusals;
}

std::vector<std::string> pool_lines(const std::vector<Pair>& pairs, size_t sessions) {
  double in = 0, out = 0, operations = 0, cpus = 0;
  size_t there = 0, draining = 0;
  for (const Pair& p : pairs) {
    there += p.now->status.is_object() ? 1 : 0;
    draining += p.now->status.is_object() && p.now->status.value("draining", Json()) == Json(true) ? 1 : 0;
    in += p.rate("/data/bytes_in");
    out += p.rate("/data/bytes_out");
    operations += p.rate("/data/operations");
    cpus += p.cpus();
  }
  const double limit = sum(pairs, "/memory/limit_bytes"), used = sum(pairs, "/memory/reserved_bytes");
  return {fmt::format(
              "pool: {} of {} reducers{}, {} sessions; in {:.2f} Gb/s, out {:.2f} Gb/s, {:.1f} operations/s",
              there, pairs.size(), draining == 0 ? "" : fmt::format(" ({} draining)", draining), sessions,
              8e-9 * in, 8e-9 * out, operations),
          fmt::format("memory {} of {}; {:.2f} CPUs", size_words(used), size_words(limit), cpus)};
}

std::string reducer_line(const Pair& p) {
  const Json& status = p.now->status;
  if (!status.is_object()) {
    std::string why = p.now->error;
    std::ranges::replace_if(
        why, [](char c) { return c < ' ' || c > '~'; }, '?');
    return fmt::format("{:<26} DOWN      {}", cut(p.now->name, 26), why);
  }
  const bool draining = status.value("draining", Json()) == Json(true);
  return fmt::format(
      "{:<26} {:<8} {:>5.0f} {:>6.0f} {:>9.2f} {:>9.2f} {:>5.0f}% {:>5.2f} {:>10} {:>7.0f} {:>7.0f}",
      cut(p.now->name, 26), draining ? "draining" : "ready", number(status, "/sessions/open"),
      number(status, "/transports/tcp/connections") + number(status, "/transports/rdma/connections"),
      8e-9 * p.rate("/data/bytes_in"), 8e-9 * p.rate("/data/bytes_out"), 100 * p.busy(), p.cpus(),
      size_words(number(status, "/memory/reserved_bytes")), errors_of(status), refusals_of(status));
}

}  // namespace

std::string top_text(const TopSample& before, const TopSample& now, size_t columns, size_t lines) {
  const std::vector<Pair> pairs = pairs_of(before, now);
  std::map<std::string, Session> sessions;
  for (const Pair& p : pairs) {
    for (const Json& s : list(p.now->status, "session_list")) {
      const std::string id = text(s, "id");
      add(sessions[id], s, session_of(p.before, id), p.before == nullptr ? 0 : p.seconds());
    }
  }
  std::vector<std::string> all = pool_lines(pairs, sessions.size());
  all.emplace_back();
  all.push_back(fmt::format("{:<26} {:<8} {:>5} {:>6} {:>9} {:>9} {:>6} {:>5} {:>10} {:>7} {:>7}", "REDUCER",
                            "STATE", "SESS", "LANES", "IN Gb/s", "OUT Gb/s", "BUSY", "CPUs", "MEMORY",
                            "ERRORS", "REFUSED"));
  for (const Pair& p : pairs) all.push_back(reducer_line(p));
  all.emplace_back();
  all.push_back(fmt::format("{:<10} {:<16} {:<8} {:>6} {:>4} {:>9}  {:<24} {}", "SESSION", "TENANT", "STATE",
                            "RANKS", "RED", "Gb/s", "WAITS",
                            "SLOWEST: part of the time waited for (in all)"));
  std::vector<std::pair<std::string, const Session*>> order;
  for (const auto& [id, session] : sessions) order.emplace_back(id, &session);
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& s) { return s.second->bytes; });
  for (const auto& [id, s] : order) {
    all.push_back(fmt::format("{:<10} {:<16} {:<8} {:>6.0f} {:>4.0f} {:>9.2f}  {:<24} {}", cut(id, 10),
                              cut(s->tenant, 16), s->state, s->ranks, s->reducers, 8e-9 * s->bytes,
                              waiting_words(*s), slow_words(*s)));
  }
  if (order.empty()) all.emplace_back("no sessions");
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), lines); ++i) {
    const bool more = i + 1 == lines && all.size() > lines;
    out += (more ? fmt::format("... {} more lines", all.size() - i) : all[i]).substr(0, columns) + '\n';
  }
  return out;
}

}  // namespace sluice::cli
