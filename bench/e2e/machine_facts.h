// What every result says about where it was measured, so that two of them can be told apart later.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/e2e/nic_facts.h"

namespace sluice::bench {

struct MachineFacts {
  std::string host;
  std::string kernel;         // "Linux 6.1.0-13-amd64 x86_64"
  std::string cpu;            // its model, as /proc/cpuinfo has it
  unsigned cores = 0;         // logical CPUs that this process may use
  uint64_t memory_bytes = 0;  // of the host
  std::optional<NicFacts> nic;
  std::string congestion_control;  // of a TCP socket that asks for none
  std::string version;             // of Sluice
  std::string revision;
};

// Of this host and network namespace. `peers`: a list of reducers; the interface is the one towards the first
// of them, and missing when the list is empty or the first can't be found. Never fails: what can't be had is
// "unknown" or 0.
[[nodiscard]] MachineFacts machine_facts(const std::string& peers, const std::string& local_address = {});

// {"host", "kernel", "cpu", "cores", "memory_bytes", "nic": {"name", "driver", "speed_mbit", "mtu"} or null,
// "congestion_control", "sluice_version", "revision"}
[[nodiscard]] nlohmann::ordered_json to_json(const MachineFacts& facts);
// Two lines that begin with "# ".
[[nodiscard]] std::string text_of(const MachineFacts& facts);

// `git describe --always --dirty` of the tree that this program was built from; "unknown" for an archive.
[[nodiscard]] const char* revision() noexcept;

}  // namespace sluice::bench
