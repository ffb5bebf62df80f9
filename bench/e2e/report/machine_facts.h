// Struct MachineFacts describes the machine of a measurement, so that results of different machines stay
// distinguishable.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/result.h"

namespace sluice::bench {

// The network interface of a run. The data comes from system calls: in a network namespace, /sys may show the
// interfaces of another namespace.
struct NicFacts {
  std::string name;         // "eth0"; the loopback interface when the peer is this host
  std::string driver;       // "virtio_net"; empty: no driver
  uint64_t speed_mbit = 0;  // of the link; 0: unknown
  int mtu = 0;              // bytes
};

// Returns the interface of the route to `host`, a name or an address. `local_address` sets the source
// address; empty: the default of the route. Sends no packets. Errors: the name does not resolve, no route, no
// such local address.
[[nodiscard]] Result<NicFacts> find_nic_to_peer(const std::string& host, const std::string& local_address);

struct MachineFacts {
  std::string host;
  std::string kernel;         // "Linux 6.1.0-13-amd64 x86_64"
  std::string cpu;            // model in /proc/cpuinfo
  unsigned cores = 0;         // logical CPUs in the affinity mask of this process
  uint64_t memory_bytes = 0;  // of the host
  std::optional<NicFacts> nic;
  std::string congestion_control;  // default of TCP sockets
  std::string version;             // of Sluice
  std::string revision;
};

// Returns the facts of this host and network namespace. `peers` is a list of reducers; `nic` is the interface
// of the route to the first one, and is missing when the list is empty or the first name does not resolve.
// Never fails: facts that are not available are "unknown" or 0.
[[nodiscard]] MachineFacts machine_facts(const std::string& peers, const std::string& local_address = {});

// {"host", "kernel", "cpu", "cores", "memory_bytes", "nic": {"name", "driver", "speed_mbit", "mtu"} or null,
// "congestion_control", "sluice_version", "revision"}
[[nodiscard]] nlohmann::ordered_json to_json(const MachineFacts& facts);
// Returns two lines that start with "# ".
[[nodiscard]] std::string text_of(const MachineFacts& facts);

}  // namespace sluice::bench
