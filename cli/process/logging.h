// Writes log messages (core/log.h) to stderr, one line each: `ts=2026-11-20T10:00:00.123Z level=info
// msg="..."` or {"ts":"...","level":"info","msg":"..."}. When stderr is the systemd journal, each line begins
// with its priority (<6>), which the journal removes.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

// `level` is "debug", "info", "warn" or "error", `format` is "logfmt" or "json". Call once, before other
// threads start.
void start_logging(const std::string& level, const std::string& format);

// Applies from the next line on. Call before other threads start.
void set_log_format(const std::string& format);

// Applies from the next line on. Thread-safe.
void set_log_level(const std::string& level);

// Returns the line or lines with the priority of an error in front of each when stderr is the journal, which
// otherwise shows them as information.
[[nodiscard]] std::string with_error_priority(std::string_view lines);

// Returns the text as a logfmt value: quoted, with quotes and backslashes escaped, and what visible_text()
// escapes.
[[nodiscard]] std::string logfmt_quoted(std::string_view text);

}  // namespace sluice::cli
