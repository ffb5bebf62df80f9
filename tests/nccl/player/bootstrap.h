// What NCCL's bootstrap gives its ranks, in memory that the forked ranks share: an all-gather of small
// blocks, by name.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace player {

using Clock = std::chrono::steady_clock;
using Block = std::vector<std::byte>;

inline constexpr int kMostRanks = 32;
inline constexpr size_t kMostBlockBytes = 256;

class Bootstrap {
 public:
  // Before the ranks are forked. Throws Failure.
  explicit Bootstrap(Clock::time_point deadline);
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  // Everybody's block, in the order of `index`; returns when all `count` have come. Any thread of any rank;
  // `name` tells exchanges that are under way at the same time apart. Throws Failure at the deadline, and
  // when some rank has given up.
  std::vector<Block> all_gather(const std::string& name, int index, int count, const Block& mine);

  // A rank gives up: nobody waits for it any more.
  void give_up();
  [[nodiscard]] bool given_up() const;

  // For the watchdog: what a rank does now.
  void set_step(int rank, const std::string& what);
  [[nodiscard]] std::string step(int rank) const;

 private:
  struct Shared;

  Shared* shared_;
  Clock::time_point deadline_;
};

}  // namespace player
