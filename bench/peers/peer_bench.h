// Class PeerBench runs the measurement of a driver: f32, one operation at a time, timed on every rank.
// Every rank checks each element of the first and the last operation of a size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/e2e/workload/pattern.h"
#include "bench/peers/computing_threads.h"
#include "bench/peers/peer.h"
#include "bench/traces/trace.h"

namespace sluice::bench {

struct PeerOptions {
  // Sizes of the operations: of an allreduce, or of the parts of all ranks together. Empty with a trace.
  std::vector<uint64_t> bytes;
  Collective collective = Collective::kAllreduce;
  std::string interface;  // whose sent bytes are counted; empty: none
  std::optional<Trace> trace;
  uint32_t iterations = 5;
  uint32_t warmup = 2;
  std::string json;
  // Share of the time that the operations take up when no thread computes; 0: operations follow one another,
  // and no thread computes.
  double computing_share = 0;
  int64_t spoil_rank = -1;  // rank that contributes a wrong element; -1: none
};

// What operations cost threads that compute on each core beside them; valid on rank 0. Shares are those of
// the processor time of all cores.
struct ComputingResult {
  double period_seconds = 0;           // from the start of an operation to that of the next
  double loss = 0;                     // share of the computation that is lost
  double sums = 0;                     // processor time of the operations when no thread computes
  double sums_beside = 0;              // the same when threads compute
  std::vector<double> beside_seconds;  // of each operation when threads compute, on its slowest rank
};

// The result of a size or of the trace; valid on rank 0.
struct PeerResult {
  uint64_t bytes = 0;                     // of one operation, or of all buckets of the trace
  std::vector<double> operation_seconds;  // of each operation or iteration of the trace, on its slowest rank
  // Of all operations of a size, or of each iteration of the trace the part in allreduces; on the slowest
  // rank.
  std::vector<double> loop_seconds;
  std::vector<double> cpu_seconds;  // user and system time of the timed loop, by rank
  // Bytes that the interface of each rank's host sent in the loop, by rank; zeros without
  // PeerOptions::interface.
  std::vector<uint64_t> sent_bytes;
  uint64_t wrong = 0;  // wrong elements on all ranks
  std::optional<ComputingResult> computing;
};

class PeerBench {
 public:
  PeerBench(Peer& peer, const PeerOptions& options);

  [[nodiscard]] PeerResult measure(uint64_t bytes);
  // The same with pauses between the operations, without and with computing threads.
  [[nodiscard]] PeerResult measure_beside_computing(uint64_t bytes);
  [[nodiscard]] PeerResult replay(const Trace& trace);

 private:
  static constexpr uint64_t kFirstSeed = 1;  // of the contributions
  static constexpr uint64_t kLastSeed = 2;

  void fill(size_t count);
  // Return the number of wrong elements of the last operation.
  [[nodiscard]] uint64_t check(uint64_t seed, size_t count);
  [[nodiscard]] uint64_t check_own_part(const Pattern& pattern, size_t count);
  [[nodiscard]] uint64_t check_gathered(const Pattern& pattern, const std::vector<float>& gathered,
                                        size_t part);
  void call(const std::vector<float>& in, size_t count);
  [[nodiscard]] double run_operation(const std::vector<float>& in, size_t count, bool refill);
  [[nodiscard]] uint64_t first_operation(size_t count);
  void warm_up(size_t count);
  void begin_loop();
  // What the timed loop used on this rank.
  struct LoopCost {
    double cpu_seconds = 0;
    uint64_t sent_bytes = 0;
  };
  [[nodiscard]] LoopCost end_loop();
  [[nodiscard]] double mean_of_ranks(double value);
  // One part of measure_beside_computing() on this rank.
  struct Part {
    std::vector<double> times;  // of each operation
    double seconds = 0;         // of the part
    double units = 0;           // of work of the computing threads
    LoopCost cost;              // without the computing threads
  };
  [[nodiscard]] Part run_part(size_t count, size_t operations, double period, bool reduces, bool computes);
  // Combines the ranks' parts. Collective.
  [[nodiscard]] PeerResult combine_parts(uint64_t bytes, double period, const Part& alone, const Part& beside,
                                         double rate_alone, uint64_t wrong);
  // Combines the ranks' times, first those of the operations. Collective.
  [[nodiscard]] PeerResult combine(uint64_t bytes, std::vector<double> seconds, LoopCost cost,
                                   uint64_t wrong);

  Peer& peer_;
  const PeerOptions& options_;
  std::vector<float> first_;  // contribution of this rank to all operations but the last
  std::vector<float> last_;   // contribution to the last one; differs, so that a stale result is detected
  std::vector<float> out_;
  std::vector<float> gathered_;  // with kBoth, whose sums are in out_
  std::vector<float> expected_;
  double cpu_at_begin_ = 0;
  uint64_t sent_at_begin_ = 0;
  std::optional<ComputingThreads> computing_;
  double copy_cpu_ = 0;  // CPU seconds of the copies before in-place operations
};

}  // namespace sluice::bench
