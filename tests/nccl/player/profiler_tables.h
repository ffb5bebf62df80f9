// The tables that a plugin exports for profiling, and NCCL's events, per version. layout_checks.cc compares
// them with ../abi/layouts.tsv.
#pragma once

#include <sys/types.h>

#include "tests/nccl/player/nccl_types.h"

namespace player {

enum ProfilerType : int {
  kProfileGroup = 1 << 0,
  kProfileCollective = 1 << 1,
  kProfileP2p = 1 << 2,
  kProfileProxyOp = 1 << 3,
  kProfileProxyStep = 1 << 4,
  kProfileProxyControl = 1 << 5,
  kProfileKernelChannel = 1 << 6,
  kProfileNetPlugin = 1 << 7,
  kProfileGroupApi = 1 << 8,
  kProfileCollectiveApi = 1 << 9,
};
inline constexpr int kStateProxyOpInProgress = 19, kStateKernelChannelStop = 22;

template <int kAbi>
struct ProfilerCollective {
  template <int kFirst, typename T, int kIndex = 0>
  using Since = Member<kAbi, From<kFirst, T, kIndex>>;
  template <int kEnd, typename T, int kIndex = 0>
  using Until = Member<kAbi, From<1, T, kIndex>, From<kEnd, Absent<From<1, T, kIndex>>>>;
  using Name = Member<kAbi, From<1, uint8_t>, From<2, const char*>>;

  [[no_unique_address]] Until<4, const char*> comm_name;
  [[no_unique_address]] Until<4, uint64_t> comm_hash;
  uint64_t sequence;
  Name function;
  const void* send;
  void* receive;
  size_t count;
  int root;
  Name data_type;
  [[no_unique_address]] Until<2, uint32_t> op;
  [[no_unique_address]] Until<3, size_t, 1> traffic_bytes;
  uint8_t channels, warps;
  Name algorithm, protocol;
  [[no_unique_address]] Until<2, int> is_collnet;
  [[no_unique_address]] Until<2, int, 1> is_nvls;
  [[no_unique_address]] Since<5, void*> parent_group;
  [[no_unique_address]] Since<7, const char*> kernel_name;
  [[no_unique_address]] Since<7, bool> is_symmetric;
  [[no_unique_address]] Since<7, void*, 1> last;
};

struct ProfilerProxyOp {
  pid_t pid;
  uint8_t channel;
  int peer, steps, chunk_bytes, is_send;
};

template <int kAbi>
struct ProfilerKernelChannel {
  uint8_t channel;
  [[no_unique_address]] Member<kAbi, From<4, uint64_t>> gpu_time;
};

template <int kAbi>
struct ProfilerEvent {
  Member<kAbi, From<1, uint8_t>, From<5, uint64_t>> type;
  void* parent;
  int rank;
  union {
    ProfilerCollective<kAbi> collective;
    ProfilerProxyOp proxy_op;
    ProfilerKernelChannel<kAbi> kernel_channel;
  };
};

template <int kAbi>
struct ProfilerTable {
  const char* name;
  Member<kAbi, From<1, Result(void**, int*)>,
         From<4, Result(void**, int*, const char*, uint64_t, int, int, int, Logger)>,
         From<5, Result(void**, uint64_t, int*, const char*, int, int, int, Logger)>>
      init;
  Result (*start_event)(void*, void**, ProfilerEvent<kAbi>*);
  Result (*stop_event)(void*);
  Result (*record_event_state)(void*, int, void*);
  Result (*finalize)(void*);
};

}  // namespace player
