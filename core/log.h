// Logging for cold code. Each event is logged once, on one line, by the code that decides it. Levels: error
// needs an operator; warn is degraded but running; info is one line per lifecycle event (reducer up, session
// started, session ended); debug is per object. Lanes do not log: they count, and the control loop logs for
// them.
#pragma once

#include <string_view>

namespace sluice::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Called from any thread, so it must be thread-safe. `line` has no newline.
using Sink = void (*)(Level level, std::string_view line) noexcept;

// The default sink writes warn and error to stderr. A program installs its own sink at start; a library must
// not.
void set_sink(Sink sink) noexcept;

void write(Level level, std::string_view line) noexcept;

inline void debug(std::string_view line) noexcept {
  write(Level::kDebug, line);
}
inline void info(std::string_view line) noexcept {
  write(Level::kInfo, line);
}
inline void warn(std::string_view line) noexcept {
  write(Level::kWarn, line);
}
inline void error(std::string_view line) noexcept {
  write(Level::kError, line);
}

}  // namespace sluice::log
