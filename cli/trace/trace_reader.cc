#include "cli/trace/trace_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "config/file_contents.h"
#include "config/json.h"
#include "config/printable_text.h"
#include "gpu_client/engine/trace/trace_format.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxEventValues = 65'536;  // of one event, 64 bytes of memory each
constexpr double kMaxNumber = 1e15;         // a larger one is no time or size of a trace; sums stay finite
// A reference, since copying a deeply nested value recurses: a file of someone else could overflow the stack.
const Json& arguments_of(const Json& event) {
  static const Json none = Json::object();
  const auto found = event.is_object() ? event.find("args") : event.end();
  return found == event.end() ? none : *found;
}

double double_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return 0;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::clamp(value, 0.0, kMaxNumber) : 0;
}

uint64_t count_of(const Json& object, const char* key) {
  return static_cast<uint64_t>(double_of(object, key));
}

uint32_t index_of(const Json& object, const char* key) {
  return static_cast<uint32_t>(
      std::min(count_of(object, key), uint64_t{std::numeric_limits<uint32_t>::max()}));
}

std::string string_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? config::printable(found->get<std::string>(), 256)
                                                     : std::string();
}

TracedParts parts_of(const Json& arguments) {
  return {.in_window = double_of(arguments, "in_window_us"),
          .on_wire = double_of(arguments, "on_wire_us"),
          .waiting = double_of(arguments, "waiting_us"),
          .adding = double_of(arguments, "adding_us")};
}

// TraceParser collects the events of one file.
class TraceParser {
 public:
  explicit TraceParser(const std::string& path) { out_.file = path; }

  // Fails when the event is not the first one of a trace.
  [[nodiscard]] Result<void> first(const Json& event);
  void add(const Json& event);
  [[nodiscard]] TracedSession finish() &&;

 private:
  void add_operation(const Json& event, const Json& arguments);

  TracedSession out_;
  std::map<uint32_t, std::string> tracks_;
  std::map<uint32_t, TracedReducer> totals_;  // by track; the last event has the totals
};

Result<void> TraceParser::first(const Json& event) {
  if (string_of(event, "name") != "sluice_trace") return invalid(out_.file + ": not a trace of SLUICE_TRACE");
  const Json& arguments = arguments_of(event);
  if (const uint64_t version = count_of(arguments, "version"); version != engine::TraceFormat::kVersion) {
    return invalid(out_.file + ": the trace has format " + std::to_string(version) +
                   "; this program reads format " + std::to_string(engine::TraceFormat::kVersion));
  }
  out_.session = string_of(arguments, "session");
  out_.rank = index_of(arguments, "rank");
  out_.ranks = index_of(arguments, "ranks");
  out_.job = string_of(arguments, "job");
  out_.host = string_of(arguments, "host");
  out_.started = string_of(arguments, "started");
  return {};
}

void TraceParser::add_operation(const Json& event, const Json& arguments) {
  TracedOperation operation{.rank = out_.rank,
                            .at = double_of(event, "ts"),
                            .duration = double_of(event, "dur"),
                            .bytes = count_of(arguments, "bytes"),
                            .type = string_of(arguments, "dtype") + " " + string_of(arguments, "op"),
                            .status = string_of(arguments, "status"),
                            .parts = parts_of(arguments),
                            .last_rank = std::nullopt};
  if (arguments.contains("last_rank")) operation.last_rank = index_of(arguments, "last_rank");
  out_.operations.push_back(std::move(operation));
}

void TraceParser::add(const Json& event) {
  const std::string name = string_of(event, "name");
  const Json& arguments = arguments_of(event);
  const uint32_t track = index_of(event, "tid");
  if (name == "allreduce" || string_of(event, "cat") == "operation") {
    add_operation(event, arguments);
  } else if (name == "total") {
    totals_[track] = {.chunks = count_of(arguments, "chunks"),
                      .bytes = count_of(arguments, "bytes"),
                      .parts = parts_of(arguments)};
  } else if (name == "stall") {
    out_.stalls.push_back({.rank = out_.rank,
                           .at = double_of(event, "ts"),
                           .duration = double_of(event, "dur"),
                           .reason = string_of(arguments, "reason")});
  } else if (name == "view change") {
    ++out_.view_changes;
  } else if (name == "records lost") {
    out_.lost_records += count_of(arguments, "records");
  } else if (name == "thread_name") {
    tracks_[track] = string_of(arguments, "name");
  } else if (name == "end of trace") {
    out_.end = string_of(arguments, "reason");
  }
}

TracedSession TraceParser::finish() && {
  double begin = std::numeric_limits<double>::max();
  for (const TracedOperation& o : out_.operations) begin = std::min(begin, o.at);
  for (const TracedStall& s : out_.stalls) begin = std::min(begin, s.at);
  for (TracedOperation& o : out_.operations) o.at -= begin;
  for (TracedStall& s : out_.stalls) s.at -= begin;
  for (const auto& [track, totals] : totals_) {
    const auto name = tracks_.find(track);
    TracedReducer& r = out_.reducers[name != tracks_.end() ? name->second : "track " + std::to_string(track)];
    // A reducer that was lost and added again has two tracks.
    r.chunks += totals.chunks;
    r.bytes += totals.bytes;
    r.parts.in_window += totals.parts.in_window;
    r.parts.on_wire += totals.parts.on_wire;
    r.parts.waiting += totals.parts.waiting;
    r.parts.adding += totals.parts.adding;
  }
  return std::move(out_);
}

}  // namespace

Result<TracedSession> parse_trace(std::string_view text, const std::string& path) {
  if (text.empty()) return invalid(path + ": the file is empty");
  if (text.front() != '[') return invalid(path + ": not a trace of SLUICE_TRACE");
  text.remove_prefix(1);
  TraceParser parser(path);
  bool is_first = true;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t length = text.find('\n');
    const bool is_whole = length != text.npos;
    std::string_view event_text = text.substr(0, length);
    text.remove_prefix(is_whole ? length + 1 : text.size());
    if (event_text == "]") break;
    if (event_text.empty()) continue;
    if (event_text.ends_with(',')) event_text.remove_suffix(1);
    const Json event = config::parse_limited_json(event_text, kMaxEventValues);
    if (!event.is_object()) {
      if (!is_whole && !is_first) break;  // the process was killed while it wrote
      return invalid(
          path + ":" + std::to_string(line) +
          (is_whole ? ": not an event of a trace of SLUICE_TRACE" : ": truncated in the first event"));
    }
    if (is_first) {
      SLUICE_RETURN_IF_ERROR(parser.first(event));
    } else {
      parser.add(event);
    }
    is_first = false;
  }
  if (is_first) return invalid(path + ": truncated in the first event");
  return std::move(parser).finish();
}

Result<TracedSession> read_trace(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(
      text, config::read_text_file(path, engine::kMaxTraceBytes + kMiB, config::FileKind::kAny, "the trace"));
  return parse_trace(text, path);
}

}  // namespace sluice::cli
