// Formats the output of `sluice bits`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bits/recorded_run.h"

namespace sluice::cli {

struct BitReport {
  std::string text;         // lines of printable ASCII
  uint64_t compared = 0;    // results, among ranks and among runs
  uint64_t different = 0;   // of these
  bool is_complete = true;  // false: two runs, or the ranks of the only run, have no result to compare
};

// Compares the ranks of each session, and each run with the first one. Lists at most `most` different
// operations of a session.
[[nodiscard]] BitReport report_bits(const std::vector<RecordedRun>& runs, size_t most);

}  // namespace sluice::cli
