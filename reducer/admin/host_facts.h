// What the kernel says of this process and of the links that it uses. Cold; files of /proc and /sys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::reducer::admin {

struct ProcessFacts {
  double cpu_seconds = 0;    // user and system
  double start_seconds = 0;  // since the epoch
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t threads = 0;
  uint64_t open_descriptors = 0;
  uint64_t most_descriptors = 0;
};

struct Link {
  std::string device;
  uint64_t bytes_per_second = 0;  // each way; as /sys/class/net/*/speed has it
};

struct HostFacts {
  ProcessFacts process;
  std::vector<Link> links;
  uint64_t tcp_retransmits = 0;  // segments, of the network namespace: a container's own, without hostNetwork
};

// `listen_host`: of the port that workers come to; its interface is the link. Empty, or a name: all links
// that are up and tell a speed, at most 16. What can't be read is 0, or left out.
[[nodiscard]] HostFacts host_facts(const std::string& listen_host);

}  // namespace sluice::reducer::admin
