#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace player {

using Clock = std::chrono::steady_clock;
using Block = std::vector<std::byte>;

inline constexpr int kMaxRanks = 32;
inline constexpr size_t kMaxBlockBytes = 256;

// Bootstrap is the counterpart of NCCL's bootstrap: an all-gather of small blocks by name, in memory that the
// forked ranks share.
class Bootstrap {
 public:
  // Must be created before the ranks are forked. Throws Failure.
  explicit Bootstrap(Clock::time_point deadline);
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // Waits for the blocks of all `count` ranks and returns them in the order of `index`. `name` distinguishes
  // concurrent exchanges. Any thread of any rank. Throws Failure at the deadline, and when a rank has
  // aborted.
  std::vector<Block> all_gather(const std::string& name, int index, int count, const Block& block);

  // Aborts the job: no rank waits for another any more.
  void abort();
  [[nodiscard]] bool is_aborted() const;

  // The current step of a rank, for the watchdog.
  void set_step(int rank, const std::string& what);
  [[nodiscard]] std::string step(int rank) const;

 private:
  struct Shared;

  Shared* shared_;
  Clock::time_point deadline_;
};

}  // namespace player
