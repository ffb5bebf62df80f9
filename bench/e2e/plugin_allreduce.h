// Allreduces through libnccl-net-sluice.so, used as NCCL uses it: CollNet's table of function pointers, a
// service thread that connects and registers, the caller as progress thread, requests of at most 256 KiB of
// which eight are in flight.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/e2e/loaded_plugin.h"
#include "bench/e2e/worker_session.h"

namespace sluice::bench {

class PluginAllreduce {
 public:
  // Collective. `bootstrap` carries the 128-byte handles from rank to rank, which NCCL does over a network of
  // its own. `path` as in LoadedPlugin. Sets the plugin's variables from `options` where the environment has
  // none. Throws Failure.
  PluginAllreduce(const std::string& path, const WorkerOptions& options, WorkerSession& bootstrap);
  ~PluginAllreduce();
  PluginAllreduce(const PluginAllreduce&) = delete;

  // recv = sum over all ranks. Blocks.
  void sum(const float* send, float* recv, size_t count);

  [[nodiscard]] const std::string& path() const noexcept { return plugin_.path(); }

 private:
  void connect(const WorkerOptions& options, WorkerSession& bootstrap);

  LoadedPlugin plugin_;
  void* comm_ = nullptr;
};

}  // namespace sluice::bench
