// Allreduces through libnccl-net-sluice.so, used as NCCL uses it: CollNet's table of function pointers, a
// service thread that connects and registers, the caller as progress thread, a ring of requests in flight.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bench/e2e/loaded_plugin.h"
#include "bench/e2e/worker_session.h"

namespace sluice::bench {

struct PluginOptions {
  bool use = false;
  std::string file;  // as in LoadedPlugin
  uint64_t request_bytes =
      2 * 1024 *
      1024;  // most of one request: NCCL's is (channels of a group, at most 8) x (chunk, at most 256 KiB)
  uint32_t steps = 8;  // requests in flight
};

class PluginAllreduce {
 public:
  // Collective. `bootstrap` carries the 128-byte handles from rank to rank, which NCCL does over a network of
  // its own. Sets the plugin's variables from `worker` where the environment has none. Throws Failure.
  PluginAllreduce(const PluginOptions& options, const WorkerOptions& worker, WorkerSession& bootstrap);
  ~PluginAllreduce();
  PluginAllreduce(const PluginAllreduce&) = delete;

  // Blocks. Failure(kExitUsage) for averages, which NCCL makes out of sums.
  void allreduce(const void* send, void* recv, size_t count, wire::DType dtype, wire::Op op);

  [[nodiscard]] const std::string& path() const noexcept { return plugin_.path(); }

 private:
  void connect(const WorkerOptions& worker, WorkerSession& bootstrap);

  const PluginOptions options_;
  LoadedPlugin plugin_;
  void* comm_ = nullptr;
  std::vector<void*> ring_;
};

}  // namespace sluice::bench
