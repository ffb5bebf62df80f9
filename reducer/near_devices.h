// Which processors are close to the RDMA devices: a thread that sums on another NUMA node than its network
// card fetches all it reads from there. Linux only, as all of this.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

namespace sluice::reducer {

struct NearProcessors {
  cpu_set_t set;
  int node = 0;
};

// Those of `allowed` on the one NUMA node that all of `devices` are at. Nothing where there is but one node,
// where a device says none or they are at several, or where none of them is allowed: then threads run
// anywhere. `sys`: where sysfs is.
[[nodiscard]] std::optional<NearProcessors> processors_near(const std::vector<std::string>& devices,
                                                            const cpu_set_t& allowed,
                                                            const std::string& sys = "/sys");

// Threads that the calling one starts while this lives run on those processors, and memory that they touch
// first is there.
class StartThreadsOn {
 public:
  explicit StartThreadsOn(const std::optional<NearProcessors>& processors) noexcept;
  StartThreadsOn(const StartThreadsOn&) = delete;
  StartThreadsOn& operator=(const StartThreadsOn&) = delete;
  ~StartThreadsOn();

 private:
  bool moved_ = false;
  cpu_set_t before_;
};

}  // namespace sluice::reducer
