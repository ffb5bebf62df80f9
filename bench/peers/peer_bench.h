// Class PeerBench runs the measurement of a driver: f32 sums, one operation at a time, timed on every rank.
// Every rank checks each element of the first and the last operation of a size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/peers/peer.h"
#include "bench/traces/trace.h"

namespace sluice::bench {

struct PeerOptions {
  std::vector<uint64_t> bytes;  // sizes of the allreduces; empty with a trace
  std::optional<Trace> trace;
  uint32_t iterations = 5;
  uint32_t warmup = 2;
  std::string json;
  int64_t spoil_rank = -1;  // rank that contributes a wrong element; -1: none
};

// The result of a size or of the trace; valid on rank 0.
struct PeerResult {
  uint64_t bytes = 0;                     // of one operation, or of all buckets of the trace
  std::vector<double> operation_seconds;  // of each operation or iteration of the trace, on its slowest rank
  // Of all operations of a size, or of each iteration of the trace the part in allreduces; on the slowest
  // rank.
  std::vector<double> loop_seconds;
  std::vector<double> cpu_seconds;  // user and system time of the timed loop, by rank
  uint64_t wrong = 0;               // wrong elements on all ranks
};

class PeerBench {
 public:
  PeerBench(Peer& peer, const PeerOptions& options);

  [[nodiscard]] PeerResult measure(uint64_t bytes);
  [[nodiscard]] PeerResult replay(const Trace& trace);

 private:
  void fill(size_t count);
  [[nodiscard]] uint64_t check(uint64_t seed, size_t count) const;
  [[nodiscard]] double run_operation(const std::vector<float>& in, size_t count, bool refill);
  [[nodiscard]] uint64_t first_operation(size_t count);
  void begin_loop();
  [[nodiscard]] double loop_cpu_seconds() const;
  // Combines the ranks' times, first those of the operations. Collective.
  [[nodiscard]] PeerResult combine(uint64_t bytes, std::vector<double> seconds, double cpu, uint64_t wrong);

  Peer& peer_;
  const PeerOptions& options_;
  std::vector<float> first_;  // contribution of this rank to all operations but the last
  std::vector<float> last_;   // contribution to the last one; differs, so that a stale result is detected
  std::vector<float> out_;
  double cpu_at_begin_ = 0;
  double copy_cpu_ = 0;  // CPU seconds of the copies before in-place operations
};

}  // namespace sluice::bench
