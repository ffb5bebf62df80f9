// Class CollectiveObserver receives what the caller of a session knows about its collectives, so that a trace
// shows to which collective of the application an operation belongs (nccl_plugin/profiler).
//
// Threads: one call at a time, from any thread. No call may block or throw.
#pragma once

#include <array>
#include <cstdint>

#include "core/units.h"

namespace sluice::engine {

// Texts are truncated.
struct CollectiveRecord {
  uint64_t number = 0;    // in the process, from 1; OperationRecord::collective
  uint64_t sequence = 0;  // number of the function's calls in the communicator, from the caller
  std::array<char, 32> function{};
  std::array<char, 32> data_type{};
  std::array<char, 32> algorithm{};
  std::array<char, 32> protocol{};
  std::array<char, 64> communicator{};  // its name; may be empty
  uint64_t communicator_id = 0;
  int32_t ranks = 0;  // of the communicator; a session has one rank per node
  int32_t rank = 0;
  int32_t nodes = 0;
  uint32_t channels = 0;
  uint64_t count = 0;  // elements
  // The monotonic clock. 0: it did not happen or was not reported.
  Nanos launched = 0;
  Nanos network_begin = 0;
  Nanos kernel_begin = 0;
  Nanos kernel_end = 0;
  uint64_t gpu_ns = 0;  // the kernel's time by the GPU's clock
};

class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;

  // Operations that end from now on belong to the collective with this number; 0: to none.
  virtual void on_collective_running(uint64_t number) noexcept = 0;
  virtual void on_collective_ended(const CollectiveRecord& collective) noexcept = 0;
};

}  // namespace sluice::engine
