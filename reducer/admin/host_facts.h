// Facts about this process and its network interfaces, read from /proc and /sys. Not for the hot path.
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
  uint64_t max_descriptors = 0;
};

struct NetworkLink {
  std::string device;
  uint64_t bytes_per_second = 0;  // in each direction, from /sys/class/net/*/speed
};

struct HostFacts {
  ProcessFacts process;
  std::vector<NetworkLink> links;
  uint64_t tcp_retransmits = 0;  // segments, of the whole network namespace
};

// The link is the interface with the address `listen_host`. If that is empty or a host name, the links are
// all interfaces that are up and have a speed, at most 16. Unreadable facts are 0 or missing.
[[nodiscard]] HostFacts host_facts(const std::string& listen_host);

}  // namespace sluice::reducer::admin
