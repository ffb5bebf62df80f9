#include "cli/trace/trace_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>

#include "config/sizes.h"

namespace sluice::cli {
namespace {

constexpr double kBarColumns = 40;

std::string time_text(double us) {
  return us < 1000  ? fmt::format("{:.0f} us", us)
         : us < 1e6 ? fmt::format("{:.1f} ms", us * 1e-3)
                    : fmt::format("{:.2f} s", us * 1e-6);
}

std::string size_text(uint64_t bytes) {
  return config::rounded_size_text(static_cast<double>(bytes));
}

double sum_of(const TracedParts& p) {
  return p.in_window + p.on_wire + p.waiting + p.adding;
}

void add_parts(TracedParts& to, const TracedParts& p) {
  to.in_window += p.in_window;
  to.on_wire += p.on_wire;
  to.waiting += p.waiting;
  to.adding += p.adding;
}

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// What all traces contain, with pointers into them.
struct Totals {
  std::vector<const TracedOperation*> operations;
  std::vector<const TracedStall*> stalls;
  std::map<std::string, TracedReducer> reducers;
  struct LastRank {
    uint64_t operations = 0;
    double waiting = 0;  // of other ranks' operations for this rank
  };
  std::map<uint32_t, LastRank> last_ranks;
  TracedParts parts;
  uint64_t bytes = 0;
  uint64_t failed = 0;
  uint64_t view_changes = 0;
};

Totals totals_of(const std::vector<TracedSession>& sessions) {
  Totals t;
  for (const TracedSession& s : sessions) {
    for (const TracedOperation& o : s.operations) {
      t.operations.push_back(&o);
      add_parts(t.parts, o.parts);
      t.bytes += o.bytes;
      if (o.status != "ok") ++t.failed;
      if (!o.last_rank) continue;
      Totals::LastRank& last = t.last_ranks[*o.last_rank];
      ++last.operations;
      last.waiting += o.parts.waiting;
    }
    for (const TracedStall& stall : s.stalls) t.stalls.push_back(&stall);
    for (const auto& [name, r] : s.reducers) {
      TracedReducer& to = t.reducers[name];
      to.chunks += r.chunks;
      to.bytes += r.bytes;
      add_parts(to.parts, r.parts);
    }
    t.view_changes += s.view_changes;
  }
  std::ranges::stable_sort(t.operations, std::greater(), &TracedOperation::duration);
  std::ranges::stable_sort(t.stalls, std::greater(), &TracedStall::duration);
  return t;
}

using Out = std::back_insert_iterator<std::string>;

void append_sessions(Out out, const std::vector<TracedSession>& sessions) {
  for (const TracedSession& s : sessions) {
    fmt::format_to(out, "{}: rank {} of {}, session {}, job {}, host {}, {}\n", s.file, s.rank, s.ranks,
                   s.session.substr(0, 8), s.job, s.host, s.started);
    if (s.end.empty()) {
      fmt::format_to(out, "  no end: the process was killed or still runs\n");
    } else if (s.end != "session closed") {
      fmt::format_to(out, "  ended before the session: {}\n", s.end);
    }
    if (s.lost_records != 0) fmt::format_to(out, "  {} records were lost\n", s.lost_records);
  }
}

void append_parts(Out out, const TracedParts& p) {
  const double all = sum_of(p);
  const std::pair<const char*, double> rows[] = {{"in the window", p.in_window},
                                                 {"on the wire", p.on_wire},
                                                 {"waiting for a rank", p.waiting},
                                                 {"adding (estimate)", p.adding}};
  fmt::format_to(out, "\nTime of the operations\n");
  for (const auto& [name, part] : rows) {
    const std::string bar(static_cast<size_t>(std::lround(share_of(part, all) * kBarColumns)), '#');
    const std::string line =
        fmt::format("  {:<20}{:>10}{:>7.1f} %  {}", name, time_text(part), 100 * share_of(part, all), bar);
    fmt::format_to(out, "{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  }
}

void append_reducers(Out out, const std::map<std::string, TracedReducer>& reducers) {
  if (reducers.empty()) return;
  double bytes = 0;
  for (const auto& [name, r] : reducers) bytes += static_cast<double>(r.bytes);
  fmt::format_to(out, "\n{:<30}{:>10}{:>10}{:>8}   mean time of a chunk\n{:58}{:>10}{:>10}{:>10}{:>10}\n",
                 "Reducers", "bytes", "chunks", "share", "", "window", "wire", "waiting", "adding");
  for (const auto& [name, r] : reducers) {
    const auto mean = [chunks = std::max<double>(1, static_cast<double>(r.chunks))](double part) {
      return time_text(part / chunks);
    };
    fmt::format_to(out, "  {:<28}{:>10}{:>10}{:>6.1f} %{:>10}{:>10}{:>10}{:>10}\n", name, size_text(r.bytes),
                   r.chunks, 100 * share_of(static_cast<double>(r.bytes), bytes), mean(r.parts.in_window),
                   mean(r.parts.on_wire), mean(r.parts.waiting), mean(r.parts.adding));
  }
}

void append_last_ranks(Out out, const Totals& t, size_t most) {
  if (t.last_ranks.empty()) return;
  using Row = std::pair<uint32_t, Totals::LastRank>;
  std::vector<Row> rows(t.last_ranks.begin(), t.last_ranks.end());
  std::ranges::stable_sort(rows, std::greater(), [](const Row& row) { return row.second.waiting; });
  if (rows.size() > most) rows.resize(most);
  fmt::format_to(out, "\nRanks that others waited for\n");
  for (const auto& [rank, last] : rows) {
    fmt::format_to(
        out, "  rank {:<6}{:>10} in {} operations, {:.1f} % of all\n", rank, time_text(last.waiting),
        last.operations,
        100 * share_of(static_cast<double>(last.operations), static_cast<double>(t.operations.size())));
  }
}

void append_stalls(Out out, const Totals& t, size_t most) {
  if (t.stalls.empty() && t.view_changes == 0) return;
  double all = 0;
  for (const TracedStall* s : t.stalls) all += s->duration;
  fmt::format_to(out, "\nStalls: {}, {} in all; {} view changes\n", t.stalls.size(), time_text(all),
                 t.view_changes);
  for (size_t i = 0; i < std::min(most, t.stalls.size()); ++i) {
    const TracedStall& s = *t.stalls[i];
    fmt::format_to(out, "{:>12} at {:<10} rank {:<5} {}\n", time_text(s.duration), time_text(s.at), s.rank,
                   s.reason);
  }
}

void append_slowest(Out out, const Totals& t, size_t most) {
  if (t.operations.empty()) return;
  fmt::format_to(out, "\n{:<36}{:<20}{:>10}{:>10}{:>10}{:>10}\n", "Slowest operations", "", "window", "wire",
                 "waiting", "adding");
  for (size_t i = 0; i < std::min(most, t.operations.size()); ++i) {
    const TracedOperation& o = *t.operations[i];
    const std::string what = fmt::format("{} {}", size_text(o.bytes), o.type);
    fmt::format_to(out, "{:>10} at {:<9} rank {:<6}{:<20}{:>10}{:>10}{:>10}{:>10}", time_text(o.duration),
                   time_text(o.at), o.rank, what, time_text(o.parts.in_window), time_text(o.parts.on_wire),
                   time_text(o.parts.waiting), time_text(o.parts.adding));
    if (o.last_rank) fmt::format_to(out, "  last: rank {}", *o.last_rank);
    if (o.status != "ok") fmt::format_to(out, "  {}", o.status);
    fmt::format_to(out, "\n");
  }
}

}  // namespace

std::string trace_summary(const std::vector<TracedSession>& sessions, size_t most) {
  const Totals t = totals_of(sessions);
  std::string text;
  const Out out(text);
  append_sessions(out, sessions);
  fmt::format_to(out, "\n{} operations, {}, {} failed\n", t.operations.size(), size_text(t.bytes), t.failed);
  if (!t.operations.empty()) append_parts(out, t.parts);
  append_reducers(out, t.reducers);
  append_last_ranks(out, t, most);
  append_stalls(out, t, most);
  append_slowest(out, t, most);
  return text;
}

}  // namespace sluice::cli
