// Where cold code says something. One line an event, by the first who decides it. Levels: error needs a
// person; warn is degraded but running; info is one line per lifecycle event (reducer up, session begun,
// session ended); debug per object. Lanes do not log: they count, and the conductor speaks for them.
#pragma once

#include <string_view>

namespace sluice::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// Called from any thread; must be thread-safe itself. `line` has no newline.
using Sink = void (*)(Level level, std::string_view line) noexcept;

// Default sink: warn and error to stderr. The program installs its own at start; a library leaves it alone.
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
