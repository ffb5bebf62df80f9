// Where the words of core/log.h go in a program: a line each on stderr, `ts=2026-11-20T10:00:00.123Z
// level=info msg="..."` or {"ts":"...","level":"info","msg":"..."}. Where stderr is systemd's journal, the
// line's priority stands in front of it (<6>), which the journal takes off.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

// `level`: "debug", "info", "warn" or "error"; `format`: "logfmt" or "json". Call once, before other threads.
void start_logging(const std::string& level, const std::string& format);

// From the next line on. Before other threads.
void set_log_format(const std::string& format);

// From the next line on. Any thread.
void set_log_level(const std::string& level);

// The msg value of logfmt: quotes, backslashes and control characters escaped, so that a line stays one line.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace sluice::cli
