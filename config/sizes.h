// Sizes and durations as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

// "65536", "64K", "4M", "1G", "2T": powers of 1024, in either case, "B" or "iB" may follow. kInvalidArgument
// names the value.
[[nodiscard]] Result<uint64_t> parse_size(std::string_view text);

// "250us", "500ms", "10s", "1m", "2h"; "0" needs no unit. Any other bare number is refused: seconds and
// milliseconds are mixed up too easily.
[[nodiscard]] Result<Nanos> parse_duration(std::string_view text);

// "64K", "1536", "4M": the largest unit that is exact.
[[nodiscard]] std::string size_text(uint64_t bytes);
// "500ms", "10s", "1m": the largest unit that is exact; "0".
[[nodiscard]] std::string duration_text(Nanos duration);

}  // namespace sluice::config
