// Class PeerFlags defines the command line options that all drivers share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/traces/trace.h"

namespace sluice::bench {

struct PeerOptions {
  std::vector<uint64_t> bytes;  // sizes of the allreduces; empty with a trace
  std::optional<Trace> trace;
  uint32_t iterations = 5;
  uint32_t warmup = 2;
  std::string json;
  int64_t spoil_rank = -1;  // rank that contributes a wrong element; -1: none
};

class PeerFlags {
 public:
  void add_to(CLI::App& app);
  // Throws Failure(kExitUsage) for invalid options and for an unreadable trace.
  [[nodiscard]] PeerOptions options() const;

 private:
  std::vector<std::string> bytes_;
  std::string trace_;
  PeerOptions options_;
};

}  // namespace sluice::bench
