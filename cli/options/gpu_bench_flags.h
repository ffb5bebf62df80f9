// Declares the options of `sluice-gpu-bench`, except those of WorkerFlags.
#pragma once

#include <string>

#include "bench/gpu/gpu_bench.h"
#include "cli/options/option_set.h"

namespace sluice::cli {

class GpuBenchFlags {
 public:
  void add_to(OptionSet& set);

  // Returns the checked options. Throws Failure(kExitUsage).
  [[nodiscard]] bench::GpuBenchOptions options() const;

 private:
  bench::GpuBenchOptions options_;
  std::string dtype_ = "float";
  std::string op_ = "sum";
  std::string device_;
  std::string wire_ = "given";
};

}  // namespace sluice::cli
