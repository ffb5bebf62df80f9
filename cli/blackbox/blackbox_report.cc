#include "cli/blackbox/blackbox_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "blackbox/event_kinds.h"
#include "cli/blackbox/event_text.h"
#include "config/json.h"

namespace sluice::cli {
namespace {

using blackbox::Event;
using blackbox::EventKind;
using blackbox::Role;
using Out = std::back_insert_iterator<std::string>;

double seconds(Nanos time) {
  return 1e-9 * static_cast<double>(time);
}

std::string utc_text(Nanos wall) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(wall / kSecond)),
                     wall % kSecond / kMillisecond);
}

std::string session_text(uint64_t session) {
  return fmt::format("{:016x}", session);
}

// Operations that have not ended, or ended with an error: all others say nothing about a failure.
std::set<const RecordedEvent*> remarkable_operations(const Timeline& timeline) {
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, const RecordedEvent*> open;
  std::set<const RecordedEvent*> out;
  for (const Timeline::Entry& entry : timeline.entries()) {
    const Event& e = entry.event();
    const std::tuple operation(e.session, e.source, e.a);
    if (e.kind == EventKind::kOperationBegan) open[operation] = entry.recorded;
    if (e.kind != EventKind::kOperationEnded) continue;
    if (e.code != Errc::kOk) {
      out.insert(entry.recorded);
      if (const auto began = open.find(operation); began != open.end()) out.insert(began->second);
    }
    open.erase(operation);
  }
  for (const auto& [operation, began] : open) out.insert(began);
  return out;
}

std::vector<const Timeline::Entry*> shown_entries(const Timeline& timeline, const FirstEvent& first,
                                                  const BlackboxView& view) {
  const std::set<const RecordedEvent*> operations = remarkable_operations(timeline);
  std::vector<const Timeline::Entry*> shown;
  for (const Timeline::Entry& entry : timeline.entries()) {
    const EventKind kind = entry.event().kind;
    if (view.since != 0 && first.zero - entry.at > view.since && &entry != first.entry) continue;
    const bool is_heartbeat = kind == EventKind::kHeartbeatSent || kind == EventKind::kHeartbeatReceived;
    const bool is_operation = kind == EventKind::kOperationBegan || kind == EventKind::kOperationEnded;
    if (!view.all && (is_heartbeat || (is_operation && !operations.contains(entry.recorded)))) continue;
    shown.push_back(&entry);
  }
  return shown;
}

void append_files(Out out, const Timeline& timeline) {
  for (size_t i = 0; i < timeline.processes().size(); ++i) {
    const RecordedProcess& p = timeline.processes()[i];
    fmt::format_to(out, "{}: {}, {} {}, host {}, pid {}, written at {} ({})\n", p.file,
                   timeline.process_name(i), p.program, p.version, p.host, p.pid,
                   utc_text(timeline.written_at(i)), p.why);
    if (p.is_truncated) fmt::format_to(out, "  note: the file is truncated; later events are missing\n");
    if (p.events_replaced + p.frequent_replaced > 0) {
      fmt::format_to(out, "  note: {} events, and {} of operations and heartbeats, were too old to be kept\n",
                     p.events_replaced, p.frequent_replaced);
    }
    if (p.dropped > 0) fmt::format_to(out, "  note: {} events are missing\n", p.dropped);
    if (p.unknown > 0) {
      fmt::format_to(out, "  note: {} events are of kinds that only a newer version of this program knows\n",
                     p.unknown);
    }
  }
}

std::string clock_text(const HostClock& clock, const std::string& reference) {
  const double ms = 1e3 * seconds(clock.correction);
  const double uncertainty = 1e3 * seconds(clock.uncertainty);
  switch (clock.state) {
    case HostClock::State::kReference: return "all times are those of host " + clock.host;
    case HostClock::State::kAgrees:
      return fmt::format("host {} agrees with host {} within {:.3f} ms", clock.host, reference, uncertainty);
    case HostClock::State::kCorrected:
      return fmt::format("host {} is {:.3f} ms {} host {}, within {:.3f} ms; corrected", clock.host,
                         std::abs(ms), ms < 0 ? "ahead of" : "behind", reference, uncertainty);
    case HostClock::State::kAssumed: break;
  }
  return fmt::format("host {} is assumed to agree with host {}: no message between them is in the files",
                     clock.host, reference);
}

// Nothing is said about the clock of a single host.
void append_clocks(Out out, const Timeline& timeline) {
  const std::vector<HostClock>& clocks = timeline.clocks().clocks;
  if (clocks.size() < 2) return;
  for (const HostClock& clock : clocks)
    fmt::format_to(out, "clock: {}\n", clock_text(clock, clocks.front().host));
}

// "rank 3", or with several sessions "3f2a0b1c rank 3".
std::string source_text(const Timeline& timeline, const Timeline::Entry& entry, bool has_sessions) {
  const std::string name = timeline.source_name(entry);
  if (!has_sessions || entry.event().session == 0) return name;
  return session_text(entry.event().session).substr(0, 8) + " " + name;
}

void append_events(Out out, const Timeline& timeline, const FirstEvent& first, const BlackboxView& view) {
  const std::vector<const Timeline::Entry*> shown = shown_entries(timeline, first, view);
  std::set<uint64_t> sessions;
  size_t width = 10;
  for (const Timeline::Entry* const entry : shown) {
    if (entry->event().session != 0) sessions.insert(entry->event().session);
  }
  const bool has_sessions = sessions.size() > 1;
  for (const Timeline::Entry* const entry : shown)
    width = std::max(width, source_text(timeline, *entry, has_sessions).size());
  for (const Timeline::Entry* const entry : shown) {
    fmt::format_to(out, "{:>12.6f} s  {:<{}}  {}\n", seconds(entry->at - first.zero),
                   source_text(timeline, *entry, has_sessions), width, event_text(timeline, *entry));
  }
  if (const size_t hidden = timeline.entries().size() - shown.size(); hidden > 0)
    fmt::format_to(out, "{} more events: --since 0 --all\n", hidden);
}

}  // namespace

std::string blackbox_report(const Timeline& timeline, const FirstEvent& first, const BlackboxView& view) {
  std::string text = first.sentence + "\n\n";
  const Out out(text);
  if (first.session != 0) {
    fmt::format_to(out, "session {}: {} at {}, which is time 0\n", session_text(first.session),
                   first.has_failed ? "ended" : "had not failed when the last file was written",
                   utc_text(first.zero));
  }
  append_files(out, timeline);
  append_clocks(out, timeline);
  text += '\n';
  append_events(out, timeline, first, view);
  return text;
}

std::string blackbox_json(const Timeline& timeline, const FirstEvent& first, const BlackboxView& view) {
  using Json = nlohmann::ordered_json;
  Json out = {{"first", first.sentence},    {"session", session_text(first.session)},
              {"failed", first.has_failed}, {"time_zero", utc_text(first.zero)},
              {"files", Json::array()},     {"clocks", Json::array()},
              {"events", Json::array()}};
  for (size_t i = 0; i < timeline.processes().size(); ++i) {
    const RecordedProcess& p = timeline.processes()[i];
    out["files"].push_back({{"file", p.file},
                            {"name", timeline.process_name(i)},
                            {"program", p.program},
                            {"host", p.host},
                            {"pid", p.pid},
                            {"why", p.why},
                            {"truncated", p.is_truncated},
                            {"replaced", p.events_replaced + p.frequent_replaced},
                            {"dropped", p.dropped}});
  }
  for (const HostClock& clock : timeline.clocks().clocks) {
    out["clocks"].push_back({{"host", clock.host},
                             {"correction_ms", 1e3 * seconds(clock.correction)},
                             {"uncertainty_ms", 1e3 * seconds(clock.uncertainty)},
                             {"assumed", clock.state == HostClock::State::kAssumed}});
  }
  for (const Timeline::Entry* const entry : shown_entries(timeline, first, view)) {
    const auto* const info = blackbox::find_event_kind(entry->event().kind);
    Json event = {{"time", seconds(entry->at - first.zero)},
                  {"source", timeline.source_name(*entry)},
                  {"event", info->name},
                  {"text", event_text(timeline, *entry)}};
    if (entry->event().session != 0) event["session"] = session_text(entry->event().session);
    if (entry->event().code != Errc::kOk) event["code"] = to_string(entry->event().code);
    if (entry == first.entry) event["first"] = true;
    out["events"].push_back(std::move(event));
  }
  return config::json_text(out, 2) + "\n";
}

}  // namespace sluice::cli
