// Class PluginAllreduce runs allreduces through libnccl-net-sluice.so and calls the plugin like NCCL does:
// through the CollNet table, with a service thread that connects, the caller as progress thread, and a ring
// of requests in flight.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "bench/e2e/allreduce/loaded_plugin.h"
#include "bench/e2e/worker/worker_session.h"

namespace sluice::bench {

struct PluginOptions {
  bool use = false;
  std::string file;  // as for LoadedPlugin
  // Maximum size of a request. NCCL's maximum is 8 channels of a group with a chunk of 256 KiB each.
  uint64_t request_bytes = 2 * 1024 * 1024;
  uint32_t steps = 8;  // requests in flight
};

class PluginAllreduce {
 public:
  // Collective. Exchanges the 128-byte handles over `bootstrap`; NCCL uses its own bootstrap network. Sets
  // the variables of the plugin from `worker` where the environment does not define them. Throws Failure.
  PluginAllreduce(const PluginOptions& options, const WorkerOptions& worker, WorkerSession& bootstrap);
  ~PluginAllreduce();
  PluginAllreduce(const PluginAllreduce&) = delete;

  // Blocks. Throws Failure(kExitUsage) for averages, because NCCL computes averages from sums.
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
