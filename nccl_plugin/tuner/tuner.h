// NCCL's tuner, free of ABI versions. One Tuner for each communicator; NCCL asks from the thread that
// enqueues.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "nccl_plugin/tuner/pricing.h"

namespace sluice::nccl::tuner {

class Tuner {
 public:
  Tuner(size_t ranks, size_t nodes) noexcept : ranks_(ranks), nodes_(nodes) {}
  // Writes what became of the communicator, where a file is wanted (host/stats_file.h).
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  void price(int function, uint64_t bytes, float* table, int algorithms, int protocols) noexcept;
  // For v2, which has no table: leaves both alone, or names a pair.
  void choose(int function, uint64_t bytes, bool collnet, int* algorithm, int* protocol) noexcept;
  [[nodiscard]] size_t chunk_bytes(int function, uint64_t bytes, int algorithm, int channels,
                                   size_t wanted) const noexcept;

 private:
  // One line for each communicator, at its first allreduce, when all that decides is known: connect() is
  // never called where CollNet is off.
  void tell_once(bool collnet) noexcept;
  struct Verdict {
    bool on = false;
    std::string words;  // on: from which size on; off: why
  };
  [[nodiscard]] Verdict verdict(bool collnet) const;
  void asked(uint64_t bytes, bool offload) noexcept;

  const size_t ranks_;
  const size_t nodes_;
  std::atomic<bool> told_{false};
  Verdict verdict_;  // once told
  std::atomic<uint64_t> asked_{0}, asked_bytes_{0}, wanted_bytes_{0};
};

// Why a communicator of `nodes` nodes has no offload, or not for everything; the first cause that holds.
// `environment` like getenv.
[[nodiscard]] const char* likely_cause(size_t ranks, size_t nodes,
                                       const char* (*environment)(const char*)) noexcept;

}  // namespace sluice::nccl::tuner
