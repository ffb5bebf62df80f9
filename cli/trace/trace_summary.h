// Formats the output of `sluice trace summary` from the traces of one or several ranks.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/trace/trace_reader.h"

namespace sluice::cli {

// Lines of printable ASCII for a terminal of 100 columns. Each list has at most `most` lines.
[[nodiscard]] std::string trace_summary(const std::vector<TracedSession>& sessions, size_t most);

}  // namespace sluice::cli
