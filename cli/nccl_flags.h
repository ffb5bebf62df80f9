// nccl-tests' letters, as `sluice bench allreduce` takes them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/e2e/allreduce_bench.h"
#include "cli/option_set.h"
#include "wire/dtype.h"

namespace sluice::cli {

// What -d and -o say: one, or "all". Failure(kExitUsage) for one that is not known.
[[nodiscard]] std::vector<wire::DType> dtypes_named(const std::string& text);
[[nodiscard]] std::vector<wire::Op> ops_named(const std::string& text);

class NcclFlags {
 public:
  void add_to(OptionSet& set, CLI::App& app);

  // What was given. Failure(kExitUsage) for letters that mean nothing here, with the reason, and for values
  // out of range.
  [[nodiscard]] bench::AllreduceOptions options() const;
  // -T; 0: none.
  [[nodiscard]] Nanos timeout() const noexcept { return timeout_s_ * kSecond; }

 private:
  bench::AllreduceOptions options_;
  std::string dtype_ = "float";
  std::string op_ = "sum";
  std::string root_ = "0";
  std::string csv_;
  std::string json_;
  std::string output_file_;
  bool plain_ = false;
  int64_t timeout_s_ = 0;
  std::array<std::string, 14> foreign_;  // values of letters that mean something on GPUs alone
};

}  // namespace sluice::cli
