#include "gpu_client/engine/trace/trace_format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <variant>

#include "config/json_text.h"
#include "core/status.h"
#include "wire/dtype.h"
#include "wire/frame.h"

namespace sluice::engine {
namespace {

// Track numbers. free_track() never leaves the range of a set: 1 to 499 and 600 to 999.
constexpr uint32_t kRecoveryTrack = 500;
constexpr uint32_t kFirstReducerTrack = 1000;

constexpr size_t kMostTracks = 390;  // of events of one kind
constexpr size_t kMaxText = 512;

void append_number(std::string& out, uint64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  out.append(digits.data(), end.ptr);
}

// Microseconds with three decimals. Not by printf, because the job may have set a locale.
void append_us(std::string& out, Nanos value) {
  const auto nanos = static_cast<uint64_t>(std::max<Nanos>(value, 0));
  append_number(out, nanos / 1000);
  const auto rest = static_cast<unsigned>(nanos % 1000);
  const std::array<char, 4> decimals{'.', static_cast<char>('0' + rest / 100),
                                     static_cast<char>('0' + rest / 10 % 10),
                                     static_cast<char>('0' + rest % 10)};
  out.append(decimals.data(), decimals.size());
}

// Appends one event; its arguments are set in between.
class EventText {
 public:
  EventText(std::string& out, std::string_view name, std::string_view category, char phase, Rank rank,
            uint32_t track)
      : out_(out) {
    ((((out_ += ",\n{\"name\":\"") += name) += "\",\"cat\":\"") += category) += "\",\"ph\":\"";
    (out_ += phase) += "\",\"pid\":";
    append_number(out_, rank);
    out_ += ",\"tid\":";
    append_number(out_, track);
  }
  EventText(const EventText&) = delete;
  ~EventText() { out_ += has_arguments_ ? "}}" : "}"; }

  EventText& at(Nanos time) {
    out_ += ",\"ts\":";
    append_us(out_, time);
    return *this;
  }
  EventText& lasts(Nanos begin, Nanos end) {
    at(begin);
    out_ += ",\"dur\":";
    append_us(out_, end - begin);
    return *this;
  }
  // Of an instant: "t" marks its track, "p" all tracks of the rank.
  EventText& scope(char scope) {
    ((out_ += ",\"s\":\"") += scope) += '"';
    return *this;
  }
  EventText& number(std::string_view name, uint64_t value) {
    key(name);
    append_number(out_, value);
    return *this;
  }
  EventText& us(std::string_view name, Nanos value) {
    key(name);
    append_us(out_, value);
    return *this;
  }
  EventText& text(std::string_view name, std::string_view value) {
    key(name);
    config::append_json_text(out_, value, kMaxText);
    return *this;
  }
  EventText& parts(const TimeParts& parts) {
    return us("in_window_us", parts.in_window)
        .us("on_wire_us", parts.on_wire)
        .us("waiting_us", parts.waiting)
        .us("adding_us", parts.adding);
  }

 private:
  void key(std::string_view name) {
    out_ += has_arguments_ ? "," : ",\"args\":{";
    has_arguments_ = true;
    ((out_ += '"') += name) += "\":";
  }

  std::string& out_;
  bool has_arguments_ = false;
};

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string hex(uint64_t value) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return {digits.data(), end.ptr};
}

}  // namespace

void TraceFormat::begin(std::string& out, std::string_view host, int64_t process) {
  std::string first;
  EventText(first, "sluice_trace", "__metadata", 'M', session_.rank, 0)
      .number("version", kVersion)
      .text("session", to_string(session_.session))
      .number("rank", session_.rank)
      .number("ranks", session_.ranks)
      .text("job", session_.job)
      .text("host", host)
      .number("process", static_cast<uint64_t>(process))
      .text("started", utc_now());
  (out += '[') += std::string_view(first).substr(1);  // without the comma
  const std::string rank = "rank " + std::to_string(session_.rank) + " of " + std::to_string(session_.ranks);
  EventText(out, "process_name", "__metadata", 'M', session_.rank, 0).text("name", rank);
  EventText(out, "process_labels", "__metadata", 'M', session_.rank, 0)
      .text("labels", "session " + to_string(session_.session).substr(0, 8) + " on " + std::string(host));
  EventText(out, "process_sort_index", "__metadata", 'M', session_.rank, 0)
      .number("sort_index", session_.rank);
  name_track(out, kRecoveryTrack, "recovery");
}

void TraceFormat::append(std::string& out, const TraceRecord& record) {
  std::visit([&](const auto& r) { append_record(out, r); }, record);
}

void TraceFormat::append_lost(std::string& out, Nanos at, uint64_t records) {
  EventText(out, "records lost", "trace", 'i', session_.rank, kRecoveryTrack)
      .at(at)
      .scope('p')
      .number("records", records);
}

void TraceFormat::end(std::string& out, Nanos at, std::string_view reason) {
  {
    EventText event(out, "end of trace", "trace", 'i', session_.rank, kRecoveryTrack);
    event.at(at).scope('p').text("reason", reason.empty() ? "session closed" : reason);
  }
  out += "\n]\n";
}

void TraceFormat::append_record(std::string& out, const OperationRecord& o) {
  const uint32_t track = free_track(out, operation_tracks_, o.issued, o.done);
  const auto since_issue = [&](Nanos time) { return time == 0 ? 0 : time - o.issued; };
  EventText event(out, wire::to_string(o.kind), "operation", 'X', session_.rank, track);
  event.lasts(o.issued, o.done)
      .number("op_id", o.op_id)
      .number("bytes", o.bytes)
      .text("dtype", wire::to_string(o.dtype))
      .text("op", wire::to_string(o.op))
      .text("status", to_string(o.status))
      .parts(o.parts)
      .us("first_put_us", since_issue(o.first_put))
      .us("last_put_us", since_issue(o.last_put))
      .us("first_result_us", since_issue(o.first_result))
      .number("chunks", o.chunks)
      .number("reducers", o.reducers);
  if (o.last_rank_lag_us != 0)
    event.number("last_rank", o.last_rank).number("last_rank_lag_us", o.last_rank_lag_us);
  if (o.collective != 0) event.number("collective", o.collective);
}

void TraceFormat::append(std::string& out, const CollectiveRecord& c) {
  const uint32_t track = free_track(out, collective_tracks_, c.kernel_begin, c.kernel_end);
  const auto since_launch = [&](Nanos time) { return time == 0 ? 0 : time - c.launched; };
  // A viewer shows the name. NCCL's names are identifiers.
  const std::string_view function = c.function.data();
  const bool is_name = !function.empty() && std::ranges::all_of(function, [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  });
  EventText event(out, is_name ? function : "collective", "collective", 'X', session_.rank, track);
  event.lasts(c.kernel_begin, c.kernel_end)
      .number("collective", c.number)
      .number("sequence", c.sequence)
      .text("communicator", c.communicator.data())
      .text("communicator_id", hex(c.communicator_id))
      .number("nodes", static_cast<uint64_t>(std::max(c.nodes, 0)))
      .number("ranks", static_cast<uint64_t>(std::max(c.ranks, 0)))
      .number("rank", static_cast<uint64_t>(std::max(c.rank, 0)))
      .text("dtype", c.data_type.data())
      .number("count", c.count)
      .text("algorithm", c.algorithm.data())
      .text("protocol", c.protocol.data())
      .number("channels", c.channels)
      .us("launch_to_network_us", since_launch(c.network_begin))
      .us("launch_to_kernel_us", since_launch(c.kernel_begin))
      .us("gpu_us", static_cast<Nanos>(c.gpu_ns));
}

void TraceFormat::append_record(std::string& out, const ChunkTiming& c) {
  EventText event(out, "chunk", "chunk", 'X', session_.rank, kFirstReducerTrack + c.reducer);
  event.lasts(c.put, c.result)
      .number("chunk", c.chunk)
      .number("op_id", c.op_id)
      .number("bytes", c.bytes)
      .number("lane", c.lane)
      .parts(c.parts);
  if (c.lag_us != 0) event.number("last_rank", c.last_rank).number("last_rank_lag_us", c.lag_us);
}

void TraceFormat::append_record(std::string& out, const AddedReducer& r) {
  name_track(out, kFirstReducerTrack + r.reducer, r.name.data());
}

void TraceFormat::append_record(std::string& out, const ReducerTotals& t) {
  EventText(out, "total", "reducer", 'i', session_.rank, kFirstReducerTrack + t.reducer)
      .at(t.at)
      .scope('t')
      .number("chunks", t.chunks)
      .number("bytes", t.bytes)
      .parts(t.parts);
}

void TraceFormat::append_record(std::string& out, const StallRecord& s) {
  EventText(out, "stall", "recovery", 'X', session_.rank, kRecoveryTrack)
      .lasts(s.begin, s.end)
      .text("reason", s.reason.data());
}

void TraceFormat::append_record(std::string& out, const ViewChangeRecord& v) {
  EventText(out, "view change", "recovery", 'i', session_.rank, kRecoveryTrack)
      .at(v.at)
      .scope('p')
      .number("version", v.version)
      .number("reducers", v.reducers);
}

void TraceFormat::name_track(std::string& out, uint32_t track, std::string_view name, uint32_t place) {
  EventText(out, "thread_name", "__metadata", 'M', session_.rank, track).text("name", name);
  EventText(out, "thread_sort_index", "__metadata", 'M', session_.rank, track).number("sort_index", place);
}

uint32_t TraceFormat::free_track(std::string& out, TrackSet& tracks, Nanos begin, Nanos end) {
  auto found = std::ranges::find_if(tracks.ends, [begin](Nanos last) { return last <= begin; });
  // More events at once than tracks share the last one.
  if (found == tracks.ends.end() && tracks.ends.size() == kMostTracks) --found;
  const auto index = static_cast<uint32_t>(found - tracks.ends.begin());
  const uint32_t track = tracks.first + index;
  if (found != tracks.ends.end()) {
    *found = end;
    return track;
  }
  tracks.ends.push_back(end);
  name_track(out, track, index == 0 ? tracks.name : tracks.name + (" " + std::to_string(index + 1)),
             tracks.is_on_top ? 0 : track);
  return track;
}

}  // namespace sluice::engine
