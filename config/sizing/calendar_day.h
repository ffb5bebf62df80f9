// Days as tables of prices date their figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::config {

// Days since 1970-01-01 of "2026-08-18"; nothing for what is no day of the calendar.
[[nodiscard]] std::optional<int64_t> parse_day(std::string_view text) noexcept;

// By the system's clock, UTC.
[[nodiscard]] int64_t today() noexcept;

}  // namespace sluice::config
