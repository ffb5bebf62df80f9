// Class Profiler calls the profiler table of a plugin, independent of its version, with events as NCCL fills
// them.
#pragma once

#include <memory>
#include <string>

#include "tests/nccl/player/library.h"
#include "tests/nccl/player/nccl_types.h"

namespace player {

struct ProfiledComm {
  uint64_t id = 0;
  std::string name;
  int nodes = 1, ranks = 1, rank = 0;
};

struct ProfiledCollective {
  uint64_t sequence = 0;
  size_t count = 0;
  int channels = 1;
};

class Profiler {
 public:
  virtual ~Profiler() = default;

  virtual Result init(const ProfiledComm& comm, void** context, int* mask) = 0;
  // An event without more than a type and a parent.
  virtual Result start(void* context, void** handle, uint64_t type, void* parent) = 0;
  // An allreduce of float32 by CollNetChain.
  virtual Result start_collective(void* context, void** handle, void* group, const ProfiledComm& comm,
                                  const ProfiledCollective& collective) = 0;
  virtual Result start_proxy_op(void* context, void** handle, void* parent, int channel) = 0;
  virtual Result start_kernel(void* context, void** handle, void* parent, int channel, uint64_t gpu_time) = 0;
  // A call without an event.
  virtual Result start_nothing(void* context, void** handle) = 0;
  virtual Result stop(void* handle) = 0;
  virtual Result record(void* handle, int state, void* arguments) = 0;
  virtual Result finalize(void* context) = 0;

  // What the oldest release with this version reports of CollNet: operations of the proxy, which it never
  // stops, and kernels.
  [[nodiscard]] virtual bool has_proxy_ops() const = 0;
  [[nodiscard]] virtual bool has_kernels() const = 0;
};

inline constexpr int kFirstProfilerAbi = 1, kLastProfilerAbi = 7;
std::unique_ptr<Profiler> load_profiler(const Library& library, int abi);

}  // namespace player
