// Parses the dates of price and bandwidth tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::config {

// Returns the days since 1970-01-01 of "2026-08-18", or nothing when the text is not a valid date.
[[nodiscard]] std::optional<int64_t> parse_day(std::string_view text) noexcept;

// Returns the current day in UTC by the system clock.
[[nodiscard]] int64_t today() noexcept;

}  // namespace sluice::config
