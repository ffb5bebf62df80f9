// The measurement that all drivers make: f32 sums, one operation at a time, timed at every rank; the first
// and the last operation of a size are checked, every element of them at every rank.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/peers/peer.h"
#include "bench/peers/peer_options.h"
#include "core/units.h"

namespace sluice::bench {

// What rank 0 knows in the end; elsewhere empty.
struct SizeResult {
  uint64_t bytes = 0;
  std::vector<double> operation_seconds;  // of each, at the rank that took longest for it
  double loop_seconds = 0;                // of all together, at the rank that took longest
  std::vector<double> cpu_seconds;        // user and system, over the timed loop, by rank
  uint64_t wrong = 0;                     // elements, over all ranks
};

struct TraceResult {
  std::vector<double> iteration_seconds;  // of each, from its begin, at the rank that took longest
  std::vector<double> allreduce_seconds;  // of each, the part that was spent in allreduces; the same
  std::vector<double> cpu_seconds;
  uint64_t wrong = 0;
};

class PeerBench {
 public:
  PeerBench(Peer& peer, const PeerOptions& options);

  [[nodiscard]] SizeResult measure(uint64_t bytes);
  [[nodiscard]] TraceResult replay(const Trace& trace);

 private:
  void fill(size_t count);
  [[nodiscard]] uint64_t check(uint64_t seed, size_t count) const;
  [[nodiscard]] double operate(const std::vector<float>& in, size_t count, bool refill);
  [[nodiscard]] uint64_t first_operation(size_t count);
  void begin_loop();
  [[nodiscard]] double loop_cpu_seconds() const;

  Peer& peer_;
  const PeerOptions& options_;
  std::vector<float> first_;  // what this rank contributes to all operations but the last,
  std::vector<float> last_;   // and to that one: a result that an earlier one left does not pass for its own
  std::vector<float> out_;
  double cpu_at_begin_ = 0;
  double copy_cpu_ = 0;  // of the copies before operations in place, which no application makes
};

}  // namespace sluice::bench
