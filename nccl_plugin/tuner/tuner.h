#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "nccl_plugin/tuner/cost_table.h"

namespace sluice::nccl::tuner {

// Tuner is NCCL's tuner for one communicator, independent of the ABI version. NCCL calls it from the thread
// that enqueues.
class Tuner {
 public:
  Tuner(size_t ranks, size_t nodes) noexcept : ranks_(ranks), nodes_(nodes) {}
  // Writes the statistics of the communicator if SLUICE_STATS_FILE is set (host/stats_file.h).
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void adjust_costs(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept;
  // For tuner v2, which has no cost table: sets an algorithm and a protocol, or leaves both alone.
  void choose_algorithm(int function, uint64_t bytes, bool collnet, int* algorithm, int* protocol) noexcept;
  [[nodiscard]] size_t chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                                   size_t proposed) const noexcept;

 private:
  struct Decision {
    bool offload = false;
    std::string text;  // with offload: the sizes that are offloaded; without: the reason
  };
  // Logs one line per communicator, at its first allreduce: NCCL calls connect() only where CollNet is
  // enabled.
  void log_once(bool collnet) noexcept;
  [[nodiscard]] Decision decide(bool collnet) const;
  void count_allreduce(uint64_t bytes, bool offload) noexcept;

  const size_t ranks_;
  const size_t nodes_;
  std::atomic<bool> logged_{false};
  Decision decision_;  // set when logged
  std::atomic<uint64_t> allreduces_{0}, allreduce_bytes_{0}, offload_bytes_{0};
};

// Returns the first cause for which NCCL has no CollNet in a communicator of `nodes` nodes. `get_variable` is
// getenv, or a fake for tests.
[[nodiscard]] const char* offload_off_reason(size_t ranks, size_t nodes,
                                             const char* (*get_variable)(const char*)) noexcept;

}  // namespace sluice::nccl::tuner
