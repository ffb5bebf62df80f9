#include "bench/peers/peer_options.h"

#include <fmt/format.h>

#include "bench/e2e/exit_codes.h"
#include "config/sizes.h"

namespace sluice::bench {

void PeerFlags::add_to(CLI::App& app) {
  app.add_option("--bytes", bytes_, "sizes of the allreduces, as in 64K,4M (powers of 1024)")->delimiter(',');
  app.add_option(
      "--trace", trace_,
      "file with lines \"<ready_us> <bytes>\", # for comments: one iteration is these allreduces in "
      "order, none before its time after the iteration's begin");
  app.add_option("--iterations", options_.iterations, "timed ones, of each size or of the trace")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", options_.warmup, "iterations before them")->capture_default_str();
  app.add_option("--json", options_.json, "file for the results; rank 0 writes it");
  app.add_option("--spoil-rank", options_.spoil_rank,
                 "this rank contributes one element that is wrong: proves that the check sees it");
}

PeerOptions PeerFlags::options() const {
  PeerOptions options = options_;
  if (bytes_.empty() == trace_.empty()) throw Failure(kExitUsage, "one of --bytes and --trace, and not both");
  for (const std::string& text : bytes_) {
    const uint64_t bytes = value_or_fail(config::parse_size(text), kExitUsage);
    if (bytes == 0 || bytes % sizeof(float) != 0)
      throw Failure(kExitUsage, fmt::format("--bytes {}: no whole number of f32", text));
    options.bytes.push_back(bytes);
  }
  if (!trace_.empty()) options.trace = value_or_fail(read_trace(trace_, sizeof(float)), kExitUsage);
  return options;
}

}  // namespace sluice::bench
