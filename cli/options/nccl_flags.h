// Declares the options of nccl-tests for `sluice bench allreduce`.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "bench/e2e/allreduce/allreduce_bench.h"
#include "cli/options/option_set.h"
#include "wire/dtype.h"

namespace sluice::cli {

// Parse -d and -o: one name, or "all". Throw Failure(kExitUsage) for an unknown name.
[[nodiscard]] std::vector<wire::DType> parse_dtypes(const std::string& text);
[[nodiscard]] std::vector<wire::Op> parse_ops(const std::string& text);
// Throws Failure(kExitUsage) for block types, which are wire types of float.
void require_no_blocks(const std::vector<wire::DType>& dtypes);
// Adds -o and -d, for parse_ops() and parse_dtypes().
void add_type_options(OptionSet& set, std::string& op, std::string& dtype);
// Adds --wire, for bench::parse_wire().
void add_wire_option(OptionSet& set, std::string& wire);

// Adds the sweep over sizes of nccl-tests, -b to -f.
template <typename Options>
void add_size_options(OptionSet& set, Options& o) {
  set.size("-b,--minbytes", o.min_bytes, "first size");
  set.size("-e,--maxbytes", o.max_bytes, "last size");
  set.size("-i,--stepbytes", o.step_bytes, "increment between sizes");
  set.number("-f,--stepfactor", o.step_factor, "factor between sizes; 1: increments of -i");
}

class NcclFlags {
 public:
  void add_to(OptionSet& set, CLI::App& app);

  // Returns the checked options. Throws Failure(kExitUsage) for values out of range, and with the reason for
  // options of nccl-tests that are not supported.
  [[nodiscard]] bench::AllreduceOptions options() const;
  // Returns the value of -T; 0: no limit.
  [[nodiscard]] Nanos timeout() const noexcept { return timeout_s_ * kSecond; }

 private:
  bench::AllreduceOptions options_;
  std::string dtype_ = "float";
  std::string op_ = "sum";
  std::string wire_ = "given";
  std::string root_ = "0";
  std::string csv_;
  std::string json_;
  std::string output_file_;
  bool plain_ = false;
  int64_t timeout_s_ = 0;
  std::array<std::string, 14> unsupported_;  // values of options that apply only to GPUs
};

}  // namespace sluice::cli
