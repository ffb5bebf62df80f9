// Reads the files of the black box (blackbox/dump_file.h). Their text is not trusted: values of the wrong
// type count as missing, and a file may end within a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "blackbox/event.h"
#include "core/result.h"

namespace sluice::cli {

struct RecordedEvent {
  blackbox::Event event;
  std::string text;  // printable
};

// What one process has written.
struct RecordedProcess {
  std::string file;
  std::string program;
  std::string version;
  std::string host;
  std::string boot;  // equal for processes with one monotonic clock; empty: unknown
  std::string why;   // why the file was written
  uint64_t pid = 0;
  Nanos monotonic = 0;  // both clocks when the file was written
  Nanos wall = 0;
  uint64_t events_replaced = 0;    // older ones, which are not in the file
  uint64_t frequent_replaced = 0;  // operations and heartbeats
  uint64_t dropped = 0;
  uint64_t unknown = 0;  // events of kinds that only a newer version knows
  bool is_truncated = false;
  std::vector<RecordedEvent> events;
};

// Returns kSystem when the file cannot be read, and kInvalidArgument with the line when it is no black box.
[[nodiscard]] Result<RecordedProcess> read_blackbox(const std::string& path);

// The same for the text of a file.
[[nodiscard]] Result<RecordedProcess> parse_blackbox(std::string_view text, const std::string& path);

}  // namespace sluice::cli
