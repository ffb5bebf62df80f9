// SLUICE_STATS_FILE: a file with one line of JSON for each communicator that ended. It shows afterwards
// whether a job was offloaded and with which throughput (docs/reference/metrics.md lists the keys). Errors
// cause one warning and never reach the job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/units.h"
#include "nccl_plugin/host/off_reason.h"

namespace sluice::nccl {

// StatsLine builds one line of JSON. Text values are escaped and truncated.
class StatsLine {
 public:
  // Starts with the keys time, host, pid, job and kind.
  explicit StatsLine(std::string_view kind);
  StatsLine& text(std::string_view key, std::string_view value);
  StatsLine& number(std::string_view key, uint64_t value);
  StatsLine& real(std::string_view key, double value);
  StatsLine& boolean(std::string_view key, bool value);
  // Returns the complete line with its newline.
  [[nodiscard]] std::string take();

 private:
  void key(std::string_view name);
  std::string line_;
};

// True when SLUICE_STATS_FILE is set.
[[nodiscard]] bool has_stats_file() noexcept;

// Appends the line to the file with one write(), so that processes can share a file. Any thread. Blocks as
// writes to a local file do.
void append_stats(StatsLine& line) noexcept;

// Appends a line of kind "refused", if the file is set: for a verdict that no tuner can write.
void append_refusal(OffReason reason, std::string_view text) noexcept;

// The same for the file `path`. Returns false with `error` when the line was not written. Does not write to a
// file that is not regular or has reached kMaxStatsBytes.
inline constexpr uint64_t kMaxStatsBytes = 64 * kMiB;
[[nodiscard]] bool append_line(const std::string& path, const std::string& line, std::string& error);

// Replaces "%h" by the host name, "%p" by the process id and "%%" by a percent sign.
[[nodiscard]] std::string stats_path(std::string_view pattern, std::string_view host, int64_t pid);

}  // namespace sluice::nccl
