// Class TraceFormat turns records into events of Chrome's trace format, which Perfetto and chrome://tracing
// open (docs/guides/trace.md). The file is the format's array, one event per line. Viewers accept the array
// without its closing bracket, so the trace of a killed process is complete up to its last write.
//
// Threads: one at a time. May allocate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/units.h"
#include "gpu_client/engine/trace/collective_observer.h"
#include "gpu_client/engine/trace/trace_record.h"

namespace sluice::engine {

inline constexpr uint64_t kMaxTraceBytes = 256 * kMiB;  // a viewer in a browser opens no larger one

struct TraceSession {
  SessionId session;
  Rank rank = 0;
  uint32_t ranks = 0;
  std::string job{};
};

class TraceFormat {
 public:
  // The number of the format, in the first event. `sluice trace summary` refuses another one.
  static constexpr uint32_t kVersion = 1;

  explicit TraceFormat(TraceSession session) : session_(std::move(session)) {}

  // Each call appends events to `out`, the begin of the file first.
  void begin(std::string& out, std::string_view host, int64_t process);
  void append(std::string& out, const TraceRecord& record);
  void append(std::string& out, const CollectiveRecord& c);
  void append_lost(std::string& out, Nanos at, uint64_t records);
  // The last event and the closing bracket. `reason` says why the trace ends before its session; empty: it
  // does not.
  void end(std::string& out, Nanos at, std::string_view reason);

 private:
  void append_record(std::string& /*out*/, const std::monostate& /*record*/) {}
  void append_record(std::string& out, const OperationRecord& o);
  void append_record(std::string& out, const ChunkTiming& c);
  void append_record(std::string& out, const AddedReducer& r);
  void append_record(std::string& out, const ReducerTotals& t);
  void append_record(std::string& out, const StallRecord& s);
  void append_record(std::string& out, const ViewChangeRecord& v);
  void name_track(std::string& out, uint32_t track, std::string_view name, uint32_t place);
  void name_track(std::string& out, uint32_t track, std::string_view name) {
    name_track(out, track, name, track);
  }
  // Tracks of events of one kind, which may overlap in time. Those of one track must not.
  struct TrackSet {
    const char* name;
    uint32_t first;
    bool is_on_top;
    std::vector<Nanos> ends;  // of the last event on each track
  };
  // Returns the first track without an event in this time.
  [[nodiscard]] uint32_t free_track(std::string& out, TrackSet& tracks, Nanos begin, Nanos end);

  const TraceSession session_;
  TrackSet operation_tracks_{.name = "operations", .first = 1, .is_on_top = false, .ends = {}};
  TrackSet collective_tracks_{.name = "collectives of NCCL", .first = 600, .is_on_top = true, .ends = {}};
};

}  // namespace sluice::engine
