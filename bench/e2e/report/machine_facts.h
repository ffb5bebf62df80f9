// Struct MachineFacts describes the machine of a measurement, so that results of different machines stay
// distinguishable.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/e2e/report/nic_facts.h"

namespace sluice::bench {

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

// Returns `git describe --always --dirty` of the source tree of this program, or "unknown" when built from an
// archive without a recorded revision.
[[nodiscard]] const char* revision() noexcept;

}  // namespace sluice::bench
