#include "reducer/control/session/session_log.h"

namespace sluice::reducer {
namespace {

// "12 more lines about sessions of job "a" in the same minute".
std::string count_text(uint64_t suppressed, const char* lines, const std::string& of) {
  return std::to_string(suppressed) + " more " + lines + " about sessions of " + of + " in the same minute";
}

}  // namespace

void SessionLog::end_windows(Nanos now) {
  infos_.end_windows(
      now, [this](uint64_t lines, const std::string& of) { log_.info(count_text(lines, "lines", of)); });
  warnings_.end_windows(
      now, [this](uint64_t lines, const std::string& of) { log_.warn(count_text(lines, "warnings", of)); });
}

}  // namespace sluice::reducer
