// Joins the events of NCCL's profiler with the sessions of CollNet: the trace of a session (SLUICE_TRACE)
// shows the collectives of its communicator, and to which of them each operation belongs.
//
// Both sides know the communicator's id only with profiler v5 and CollNet v11, from NCCL 2.28.7 on (2.28.3
// crashes with it: abi/collnet_entries.h). Of older and unknown releases nothing can be joined.
//
// Threads: any. One mutex, held for a few stores; without SLUICE_TRACE, nothing is called. Handles are
// numbers and never dereferenced, so calls with an unknown handle have no effect. Errors: none.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu_client/engine/trace/collective_observer.h"

namespace sluice::nccl::profiler {

// Identifies a collective, or its kernel on one channel. 0: nothing to follow.
using Handle = uint64_t;

struct CommunicatorInfo {
  uint64_t id = 0;
  std::string_view name;
  int nodes = 0;
  int ranks = 0;
  int rank = 0;
};

struct CollectiveInfo {
  std::string_view function;
  std::string_view data_type;
  std::string_view algorithm;
  std::string_view protocol;
  uint64_t sequence = 0;
  uint64_t count = 0;
  uint32_t channels = 0;
};

// NCCL's context of one communicator.
class Communicator;
// Throws std::bad_alloc.
[[nodiscard]] Communicator* open(const CommunicatorInfo& info);
void close(Communicator* communicator) noexcept;

// Returns 0 when no session of the communicator has a trace.
[[nodiscard]] Handle start_collective(Communicator& communicator, const CollectiveInfo& info) noexcept;
// Of a collective on one channel. NCCL does not report the end of CollNet's network part.
void start_network(Handle collective) noexcept;
// `gpu_time`: nanoseconds of the GPU's clock.
[[nodiscard]] Handle start_kernel(Handle collective, uint64_t gpu_time) noexcept;
void set_kernel_end(Handle kernel, uint64_t gpu_time) noexcept;
// The end of a kernel. That of a collective is the end of its launch, and has no effect.
void stop(Handle handle) noexcept;

// Class Attachment connects the trace of a session with its communicator for its lifetime.
class Attachment {
 public:
  // `observer` may be null, and the id 0 for not known. Without memory, the trace has no collectives.
  Attachment(uint64_t communicator_id, engine::CollectiveObserver* observer) noexcept;
  ~Attachment();
  Attachment(const Attachment&) = delete;

 private:
  engine::CollectiveObserver* observer_;
};

}  // namespace sluice::nccl::profiler
