// Reads the files that SLUICE_TRACE names (gpu_client/engine/trace/trace_format.h). Their text is not
// trusted: missing fields count as 0, and the file may end within an event.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::cli {

// Microseconds.
struct TracedParts {
  double in_window = 0;
  double on_wire = 0;
  double waiting = 0;
  double adding = 0;
};

struct TracedOperation {
  uint32_t rank = 0;
  double at = 0;  // microseconds since the first operation or stall of the file
  double duration = 0;
  uint64_t bytes = 0;
  std::string type;    // "f32 sum"
  std::string status;  // "ok", or why it failed
  TracedParts parts;
  std::optional<uint32_t> last_rank;
};

struct TracedStall {
  uint32_t rank = 0;
  double at = 0;
  double duration = 0;
  std::string reason;
};

struct TracedReducer {
  uint64_t chunks = 0;
  uint64_t bytes = 0;
  TracedParts parts;
};

struct TracedSession {
  std::string file;
  std::string session;
  uint32_t rank = 0;
  uint32_t ranks = 0;
  std::string job;
  std::string host;
  std::string started;
  std::string end;  // why the trace ends; empty: the process was killed or still runs
  uint64_t lost_records = 0;
  uint64_t view_changes = 0;
  std::vector<TracedOperation> operations;
  std::vector<TracedStall> stalls;
  std::map<std::string, TracedReducer> reducers;
};

// Returns kSystem when the file cannot be read, and kInvalidArgument with the line when it is no such trace.
[[nodiscard]] Result<TracedSession> read_trace(const std::string& path);

// The same for the text of a file.
[[nodiscard]] Result<TracedSession> parse_trace(std::string_view text, const std::string& path);

}  // namespace sluice::cli
