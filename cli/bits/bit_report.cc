#include "cli/bits/bit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/bits/bit_comparison.h"
#include "core/text_encoding.h"

namespace sluice::cli {
namespace {

using engine::BitOperation;

// "1,204"; not by the locale.
std::string number_text(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string operations_text(uint64_t count) {
  return number_text(count) + (count == 1 ? " operation" : " operations");
}

// "rank 2", "ranks 0, 1, 3", "ranks 0-2, 4"
std::string ranks_text(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

// "allreduce of 4194304 f32, sum"
std::string call_text(const BitOperation& o) {
  std::string text = fmt::format("{} of {} {}", wire::to_string(o.kind), o.count, wire::to_string(o.dtype));
  if (!wire::copies(o.kind)) (text += ", ") += wire::to_string(o.op);
  return text;
}

std::string call_text(const std::optional<BitOperation>& o) {
  return o ? call_text(*o) : std::string("no such operation");
}

bool have_same_call(const std::vector<RankGroup>& groups) {
  return std::ranges::all_of(groups, [&](const RankGroup& g) {
    return g.operation && groups.front().operation &&
           call_text(*g.operation) == call_text(*groups.front().operation);
  });
}

std::string difference_text(const OperationDifference& d) {
  const bool same_call = have_same_call(d.groups);
  std::string text = fmt::format("operation {} ({}): ", d.number, call_text(d.groups.front().operation));
  if (!d.has_majority() || !same_call) {
    for (const RankGroup& g : d.groups) {
      text += fmt::format("{}{} {} {}", &g == d.groups.data() ? "" : "; ", ranks_text(g.ranks),
                          g.ranks.size() == 1 ? "has" : "have",
                          same_call ? hex_digits(g.operation->crc, 8) : call_text(g.operation));
    }
    return d.has_majority() ? text : text + "; no majority";
  }
  std::vector<uint32_t> wrong;
  for (size_t i = 1; i < d.groups.size(); ++i)
    wrong.insert(wrong.end(), d.groups[i].ranks.begin(), d.groups[i].ranks.end());
  std::ranges::sort(wrong);
  return text + fmt::format("{} {} from {}", ranks_text(wrong), wrong.size() == 1 ? "differs" : "differ",
                            ranks_text(d.groups.front().ranks));
}

using Out = std::back_insert_iterator<std::string>;

void append_ends(Out out, const RecordedSession& session) {
  for (const BitRecord& r : session.records) {
    const std::string at = r.operations.empty()
                               ? "before the first operation"
                               : fmt::format("after operation {}", r.operations.back().operation.number);
    if (r.end.empty()) {
      fmt::format_to(out, "  rank {}: ends {}{}: the process was killed or still runs\n", r.rank, at,
                     r.is_truncated ? " in an incomplete line" : "");
    } else if (r.end != "session closed") {
      fmt::format_to(out, "  rank {}: ends {}: {}\n", r.rank, at, r.end);
    }
  }
}

void append_comparison(Out out, const RecordedSession& session, const RankComparison& c) {
  const std::string ranks = fmt::format("{} ranks", session.records.size());
  const std::string running =
      c.running ? fmt::format(" (running hash {})", hex_digits(*c.running, engine::RunningHash::kDigits))
                : std::string();
  if (session.records.size() == 1) {
    fmt::format_to(out, "  {} of rank {} alone{}\n", operations_text(c.operations),
                   session.records.front().rank, running);
    return;
  }
  if (c.compared == 0) {
    fmt::format_to(out, "  no result to compare on {}\n", ranks);
  } else if (c.different == 0) {
    fmt::format_to(out, "  {} equal on {}{}\n", operations_text(c.compared), ranks, running);
  }
  for (const OperationDifference& d : c.differences) fmt::format_to(out, "  {}\n", difference_text(d));
  if (c.different > 0)
    fmt::format_to(out, "  {} of {} differ\n", number_text(c.different), operations_text(c.compared));
  for (const BitRecord& r : session.records) {
    if (const auto wrong = c.wrong.find(r.rank); wrong != c.wrong.end())
      fmt::format_to(out, "  rank {} on host {} differs from most ranks in {}\n", r.rank, r.host,
                     operations_text(wrong->second));
  }
  if (c.own_results > 0)
    fmt::format_to(out, "  {} not compared: each rank has a result of its own\n",
                   operations_text(c.own_results));
  if (c.not_hashed > 0)
    fmt::format_to(out, "  {} not compared: results in device memory\n", operations_text(c.not_hashed));
}

std::string session_name(const RecordedRun& run, size_t index) {
  return run.sessions.size() == 1 ? "run " + run.name : fmt::format("run {} session {}", run.name, index + 1);
}

void append_session(BitReport& report, const std::string& name, const RecordedSession& session, size_t most) {
  const BitRecord& first = session.records.front();
  const Out out(report.text);
  fmt::format_to(out, "{}: session {}, job {}, {} of {} ranks, sluice {}, {}\n", name,
                 session.session.substr(0, 8), first.job, session.records.size(), session.ranks,
                 first.library, first.started);
  const RankComparison c = compare_ranks(session, most);
  append_comparison(out, session, c);
  append_ends(out, session);
  report.compared += c.compared;
  report.different += c.different;
}

// Everything but the results that makes two sessions incomparable; empty: nothing.
std::string call_difference(const RunDifference& d) {
  const std::string expected = call_text(d.expected);
  const std::string found = call_text(d.found);
  return expected == found ? std::string() : fmt::format(": {}, not {}", found, expected);
}

void append_run_comparison(BitReport& report, const std::string& name, const std::string& expected_name,
                           const RecordedSession& expected, const RecordedSession& found) {
  const Out out(report.text);
  if (expected.ranks != found.ranks) {
    fmt::format_to(out, "{} differs from {}: {} ranks, not {}\n", name, expected_name, found.ranks,
                   expected.ranks);
    ++report.different;
    return;
  }
  const SessionComparison c = compare_sessions(expected, found);
  report.compared += c.compared;
  report.different += c.different;
  if (c.first) {
    fmt::format_to(out, "{} differs from {} first at operation {} ({}){}{}; {} of {} differ\n", name,
                   expected_name, c.first->number,
                   call_text(c.first->expected ? c.first->expected : c.first->found),
                   c.first->ranks.empty() ? "" : " on " + ranks_text(c.first->ranks),
                   call_difference(*c.first), number_text(c.different), operations_text(c.compared));
  } else if (c.compared == 0) {
    fmt::format_to(out, "{} and {} have no result to compare\n", name, expected_name);
    report.is_complete = false;
  } else {
    fmt::format_to(out, "{} equals {}: {}\n", name, expected_name, operations_text(c.compared));
  }
  if (c.compared > 0 && c.expected_end != c.found_end) {
    fmt::format_to(out, "  compared up to operation {}: {} ends there\n",
                   std::min(c.expected_end, c.found_end) - 1,
                   c.expected_end < c.found_end ? expected_name : name);
  }
}

void append_runs(BitReport& report, const RecordedRun& expected, const RecordedRun& found) {
  const size_t sessions = std::min(expected.sessions.size(), found.sessions.size());
  for (size_t i = 0; i < sessions; ++i) {
    append_run_comparison(report, session_name(found, i), session_name(expected, i), expected.sessions[i],
                          found.sessions[i]);
  }
  if (expected.sessions.size() == found.sessions.size()) return;
  fmt::format_to(Out(report.text), "run {} differs from run {}: {} sessions, not {}\n", found.name,
                 expected.name, found.sessions.size(), expected.sessions.size());
  ++report.different;
}

}  // namespace

BitReport report_bits(const std::vector<RecordedRun>& runs, size_t most) {
  BitReport report;
  for (const RecordedRun& run : runs) {
    for (size_t i = 0; i < run.sessions.size(); ++i)
      append_session(report, session_name(run, i), run.sessions[i], most);
  }
  if (runs.size() == 1) report.is_complete = report.compared > 0;
  for (size_t i = 1; i < runs.size(); ++i) append_runs(report, runs.front(), runs[i]);
  return report;
}

}  // namespace sluice::cli
