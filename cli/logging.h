// Where the words of core/log.h go in a program: lines on stderr, `ts=2026-11-20T10:00:00.123Z level=info
// msg="..."`.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

// "debug", "info", "warn" or "error". Call once, before other threads.
void start_logging(const std::string& level);

// The msg value: quotes, backslashes and control characters escaped, so that a line stays one line.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace sluice::cli
