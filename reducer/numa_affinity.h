// Pins threads to the NUMA node of the RDMA devices, so that lanes do not read received data across nodes.
//
// Linux only.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

namespace sluice::reducer {

struct NumaCpus {
  cpu_set_t set;
  int node = 0;
};

// The CPUs of `allowed` on the NUMA node that all `devices` share. Nothing if the machine has a single node,
// if a device has no node, if the devices are on several nodes, or if no CPU of the node is allowed. `sys` is
// the mount point of sysfs.
[[nodiscard]] std::optional<NumaCpus> cpus_near(const std::vector<std::string>& devices,
                                                const cpu_set_t& allowed, const std::string& sys = "/sys");

// Class ScopedCpuAffinity pins the calling thread for its scope, for threads that are started meanwhile.
//
// They inherit the affinity, and memory that they touch first is allocated on their node.
class ScopedCpuAffinity {
 public:
  explicit ScopedCpuAffinity(const std::optional<NumaCpus>& cpus) noexcept;
  ScopedCpuAffinity(const ScopedCpuAffinity&) = delete;
  ScopedCpuAffinity& operator=(const ScopedCpuAffinity&) = delete;
  ~ScopedCpuAffinity();

 private:
  bool is_pinned_ = false;
  cpu_set_t previous_;
};

}  // namespace sluice::reducer
