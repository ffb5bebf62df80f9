// The structure in which NCCL describes an event that starts (ncclProfilerEventDescr), in every version. The
// layouts are NCCL's, checked against the table in tests/nccl/abi. The plugin reads these members only, so
// the other kinds of events are left out.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nccl_plugin/abi/member.h"

namespace sluice::nccl::abi {

// Bits of the activation mask. An event has one of them as its type.
enum ProfilerEventType : int {
  kProfileCollective = 1 << 1,
  kProfileProxyOp = 1 << 3,
  kProfileKernelChannel = 1 << 6,
};

// The state in which NCCL reports the GPU's time of the end of a kernel.
inline constexpr int kProfilerKernelStop = 22;

// One collective of the application in one communicator.
template <int kVersion>
struct ProfilerCollective {
  template <int kFirst, typename T, int kIndex = 0>
  using Since = Member<kVersion, From<kFirst, T, kIndex>>;
  // A member that version kEnd has no longer.
  template <int kEnd, typename T, int kIndex = 0>
  using Until = Member<kVersion, From<1, T, kIndex>, From<kEnd, Absent<From<1, T, kIndex>>>>;
  // NCCL's number of a name in v1, the name from v2 on.
  using Name = Member<kVersion, From<1, uint8_t>, From<2, const char*>>;

  [[no_unique_address]] Until<4, const char*> comm_name;
  [[no_unique_address]] Until<4, uint64_t> comm_hash;
  uint64_t sequence;  // counts the collectives of this function in the communicator
  Name function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  Name data_type;
  [[no_unique_address]] Until<2, uint32_t> op;
  [[no_unique_address]] Until<3, size_t, 1> traffic_bytes;
  uint8_t channels;
  uint8_t warps;
  Name algorithm;
  Name protocol;
  [[no_unique_address]] Until<2, int> is_collnet;
  [[no_unique_address]] Until<2, int, 1> is_nvls;
  [[no_unique_address]] Since<5, void*> parent_group;
  [[no_unique_address]] Since<7, const char*> kernel_name;
  [[no_unique_address]] Since<7, bool> is_symmetric;
  [[no_unique_address]] Since<7, void*, 1> last;
};

// The network part of a collective on one channel.
struct ProfilerProxyOp {
  pid_t pid;  // process of the collective; `parent` of the event is valid in that process only
  uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int is_send;
};

// The GPU's kernel of a collective on one channel, from v3 on.
template <int kVersion>
struct ProfilerKernelChannel {
  uint8_t channel;
  [[no_unique_address]] Member<kVersion, From<4, uint64_t>> gpu_time;
};

// ProfilerEvent<N> is ncclProfilerEventDescr_vN.
template <int kVersion>
struct ProfilerEvent {
  Member<kVersion, From<1, uint8_t>, From<5, uint64_t>> type;
  void* parent;  // handle of the collective, for proxy operations and kernels
  int rank;
  union {
    ProfilerCollective<kVersion> collective;
    ProfilerProxyOp proxy_op;
    ProfilerKernelChannel<kVersion> kernel_channel;
  };
};

}  // namespace sluice::nccl::abi
