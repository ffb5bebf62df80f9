#pragma once

#include <atomic>
#include <cstdint>

#include "nccl_plugin/tuner/cost_table.h"
#include "nccl_plugin/tuner/verdict.h"

namespace sluice::nccl::tuner {

// Tuner is NCCL's tuner for one communicator, independent of the ABI version. NCCL calls it from the thread
// that enqueues. It logs the verdict of its communicator once: at init if the reason needs nothing of NCCL,
// else at the first allreduce, because NCCL calls CollNet's connect only where CollNet is enabled, and then
// on one rank of a node only.
class Tuner {
 public:
  // `comm_id`: NCCL's commId, which its log shows; 0: unknown before v5.
  Tuner(size_t ranks, size_t nodes, uint64_t comm_id);
  // Logs the verdict of a communicator that ran no allreduce. Writes the statistics of the communicator if
  // SLUICE_STATS_FILE is set (host/stats_file.h).
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void adjust_costs(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept;
  // For tuner v2, which has no cost table: sets an algorithm and a protocol, or leaves both alone.
  void choose_algorithm(int function, uint64_t bytes, bool collnet, int* algorithm, int* protocol) noexcept;
  [[nodiscard]] size_t chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                                   size_t proposed) const noexcept;
  // True when the next collective must fail: the session of a communicator of as many nodes, older than this
  // failure, has ended with an error, and this NCCL drops the errors of its network
  // (config::NcclDefect::kErrorsDropped), so nothing else ends the job. A communicator that the application
  // makes after the failure, without the lost rank, goes on.
  [[nodiscard]] bool must_fail() const noexcept;

 private:
  // Decides, logs and records the verdict at the first call. `collnet`, `direct`: NCCL has it for this call.
  void decide_once(bool collnet, bool direct) noexcept;
  void set_verdict(Verdict verdict) noexcept;
  void count_allreduce(uint64_t bytes, bool offload) noexcept;

  const size_t ranks_;
  const size_t nodes_;
  const uint64_t comm_id_;
  const bool avoid_chain_;
  const OffloadRange range_;
  const uint64_t failures_before_;  // of the CommunicatorRegistry
  std::atomic<bool> decided_{false};
  Verdict verdict_;  // set when decided
  std::atomic<uint64_t> allreduces_{0}, allreduce_bytes_{0}, offload_bytes_{0};
};

}  // namespace sluice::nccl::tuner
