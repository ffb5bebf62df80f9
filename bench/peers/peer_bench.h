// Class PeerBench runs the measurement of a driver: f32 sums, one operation at a time, timed on every rank.
// Every rank checks each element of the first and the last operation of a size.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/peers/peer.h"
#include "bench/peers/peer_options.h"
#include "core/units.h"

namespace sluice::bench {

// The result on rank 0; other ranks have an empty result.
struct SizeResult {
  uint64_t bytes = 0;
  std::vector<double> operation_seconds;  // of each operation, on its slowest rank
  double loop_seconds = 0;                // of all operations, on the slowest rank
  std::vector<double> cpu_seconds;        // user and system time of the timed loop, by rank
  uint64_t wrong = 0;                     // wrong elements on all ranks
};

struct TraceResult {
  std::vector<double> iteration_seconds;  // of each iteration, on its slowest rank
  std::vector<double> allreduce_seconds;  // of each iteration: the part in allreduces, on its slowest rank
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
  [[nodiscard]] double run_operation(const std::vector<float>& in, size_t count, bool refill);
  [[nodiscard]] uint64_t first_operation(size_t count);
  void begin_loop();
  [[nodiscard]] double loop_cpu_seconds() const;

  Peer& peer_;
  const PeerOptions& options_;
  std::vector<float> first_;  // contribution of this rank to all operations but the last
  std::vector<float> last_;   // contribution to the last one; differs, so that a stale result is detected
  std::vector<float> out_;
  double cpu_at_begin_ = 0;
  double copy_cpu_ = 0;  // CPU seconds of the copies before in-place operations
};

}  // namespace sluice::bench
