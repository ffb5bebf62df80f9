// Parses and formats sizes, durations and rates as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

// Parses "65536", "64K", "4M", "1G", "2T": powers of 1024, in either case, optionally followed by "B" or
// "iB". Returns kInvalidArgument with the value.
[[nodiscard]] Result<uint64_t> parse_size(std::string_view text);

// Parses "250us", "500ms", "10s", "1m", "2h". Only "0" may omit the unit: a bare number could mean seconds or
// milliseconds.
[[nodiscard]] Result<Nanos> parse_duration(std::string_view text);

// Parses the rate of a link: "200mbit", "25gbit", "1.5gbit", in either case, powers of 1000, or bits/s
// without a unit. Returns kInvalidArgument with the value, also below 10 kbit/s and above 10 Tbit/s.
[[nodiscard]] Result<uint64_t> parse_rate(std::string_view text);

// Returns "64K", "1536", "4M": the largest unit that is exact.
[[nodiscard]] std::string size_text(uint64_t bytes);
// Returns "500ms", "10s", "1m": the largest unit that is exact; "0" without a unit.
[[nodiscard]] std::string duration_text(Nanos duration);

// Returns "25gbit", "1500mbit", "999": the largest unit that is exact.
[[nodiscard]] std::string rate_text(uint64_t bits_per_second);

// Returns "1536 B" as "1.5 KiB": rounded, for reports.
[[nodiscard]] std::string rounded_size_text(double bytes);

// Returns the shortest text that a parser converts back to `value`.
[[nodiscard]] std::string number_text(double value);
[[nodiscard]] std::string number_text(float value);

}  // namespace sluice::config
