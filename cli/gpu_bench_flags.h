// Options of `sluice-gpu-bench`, but for those of its workers and reducers.
#pragma once

#include <string>

#include "bench/gpu/gpu_bench.h"
#include "cli/option_set.h"

namespace sluice::cli {

class GpuBenchFlags {
 public:
  void add_to(OptionSet& set);

  // What was given, checked. Failure(kExitUsage).
  [[nodiscard]] bench::GpuBenchOptions options() const;

 private:
  bench::GpuBenchOptions options_;
  std::string dtype_ = "float";
  std::string op_ = "sum";
  std::string device_;
  std::string wire_ = "given";
};

}  // namespace sluice::cli
