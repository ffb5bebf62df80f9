// Formats the output of `sluice top` from two samples of the status of each reducer.
#pragma once

#include <cstddef>
#include <string>

#include "cli/commands/pool/pool_query.h"

namespace sluice::cli {

using TopSample = PoolSample;

// Returns at most `lines` lines of at most `columns` characters, the last one ended by a newline. Rates cover
// the time between the samples; a reducer that is new or has restarted has none. Text from reducers is
// reduced to printable ASCII.
[[nodiscard]] std::string top_text(const TopSample& previous, const TopSample& current, size_t columns,
                                   size_t lines);

}  // namespace sluice::cli
