// The memory and CPUs that this process may use: what the machine has, within the limits of the process's
// control groups (v1 and v2) and its CPU affinity.
//
// A container or a systemd unit limits both, and the kernel kills a process that exceeds its memory. So every
// default that derives from the size of the machine uses these functions. Cold path; they read files.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"

namespace sluice::config {

struct HostLimits {
  uint64_t memory_bytes = 0;
  double cpus = 1;  // at most the allowed CPUs; a quota may be a fraction
  // The files of the control groups with these limits; empty: the machine or the affinity decides.
  std::string memory_file = {};
  std::string cpu_file = {};

  // The number of threads that use all CPUs; at least 1.
  [[nodiscard]] uint32_t threads() const noexcept;
  // "300 MB of memory (FILE) and 1.5 CPUs (FILE)": what control groups limit; empty: nothing.
  [[nodiscard]] std::string text() const;
};

[[nodiscard]] HostLimits host_limits();

// Error kMemoryLimit if an option asks for more memory than this process may use: with it, the kernel would
// kill the process.
[[nodiscard]] Result<void> check_memory_limit(const std::string& option, uint64_t bytes);

// The same for a machine of this size, whose files /proc/self/cgroup, /proc/self/mountinfo and those of the
// control groups are below `root`. Of nested groups the smallest limit counts.
[[nodiscard]] HostLimits host_limits_below(const std::string& root, uint64_t memory_bytes, uint32_t cpus);

}  // namespace sluice::config
