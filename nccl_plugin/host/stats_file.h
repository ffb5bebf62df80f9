// SLUICE_STATS_FILE: what became of each communicator of this process, a line of JSON at its end, for who
// wants to know afterwards whether a job was offloaded and what it gained (docs/metrics.md has the keys).
// Nothing that goes wrong here reaches the job: it is a warning, once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/units.h"

namespace sluice::nccl {

// One line, key by key; text is made JSON, of a bounded length.
class StatsLine {
 public:
  // Begins with when and where: time, host, pid, job, kind.
  explicit StatsLine(std::string_view kind);
  StatsLine& text(std::string_view key, std::string_view value);
  StatsLine& number(std::string_view key, uint64_t value);
  StatsLine& real(std::string_view key, double value);
  StatsLine& truth(std::string_view key, bool value);
  // Closed, with a line's end.
  [[nodiscard]] std::string take();

 private:
  void key(std::string_view name);
  std::string line_;
};

// A file is wanted; else it costs nothing to know that there is none.
[[nodiscard]] bool has_stats_file() noexcept;

// Appends it by one write(), so that processes may share a file. Any thread; may block as a local file does.
void append_stats(StatsLine& line) noexcept;

// The same, of a file that is told: false with `why` when it is not written. A file that is no regular one,
// or has grown to kMostStats, is left alone.
inline constexpr uint64_t kMostStats = 64 * kMiB;
[[nodiscard]] bool append_to(const std::string& path, const std::string& line, std::string& why);

// "%h" is the host's name, "%p" the process's id, "%%" a percent sign; anything else stays as it is.
[[nodiscard]] std::string stats_path(std::string_view pattern, std::string_view host, int64_t pid);

}  // namespace sluice::nccl
