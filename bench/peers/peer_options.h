// The command line of every driver, beside what its library needs to start.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/traces/trace.h"

namespace sluice::bench {

struct PeerOptions {
  std::vector<uint64_t> bytes;  // of an allreduce, one after the other; empty when there is a trace
  std::optional<Trace> trace;
  uint32_t iterations = 5;
  uint32_t warmup = 2;
  std::string json;
  int64_t spoil_rank = -1;
};

class PeerFlags {
 public:
  void add_to(CLI::App& app);
  // Throws Failure (kExitUsage, a trace that can't be read too).
  [[nodiscard]] PeerOptions options() const;

 private:
  std::vector<std::string> bytes_;
  std::string trace_;
  PeerOptions options_;
};

}  // namespace sluice::bench
