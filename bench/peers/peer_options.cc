#include "bench/peers/peer_options.h"

#include <fmt/format.h>

#include "bench/e2e/process/exit_codes.h"
#include "config/sizes.h"

namespace sluice::bench {

void PeerFlags::add_to(CLI::App& app) {
  app.add_option("--bytes", bytes_, "sizes of the allreduces, for example 64K,4M (powers of 1024)")
      ->delimiter(',');
  app.add_option("--trace", trace_,
                 "file with lines \"<ready_us> <bytes>\", # for comments; an iteration runs the allreduces "
                 "in order, each "
                 "at the given time after its start or later");
  app.add_option("--iterations", options_.iterations, "timed operations per size, or iterations of the trace")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", options_.warmup, "untimed operations or iterations before them")
      ->capture_default_str();
  app.add_option("--json", options_.json, "file for the results, written by rank 0");
  app.add_option("--spoil-rank", options_.spoil_rank,
                 "rank that contributes one wrong element, to prove that the check detects it");
}

PeerOptions PeerFlags::options() const {
  PeerOptions options = options_;
  if (bytes_.empty() == trace_.empty()) throw Failure(kExitUsage, "expected either --bytes or --trace");
  for (const std::string& text : bytes_) {
    const uint64_t bytes = value_or_fail(config::parse_size(text), kExitUsage);
    if (bytes == 0 || bytes % sizeof(float) != 0)
      throw Failure(kExitUsage,
                    fmt::format("--bytes {}: expected a positive multiple of 4 B, the size of f32", text));
    options.bytes.push_back(bytes);
  }
  if (!trace_.empty()) options.trace = value_or_fail(read_trace(trace_, sizeof(float)), kExitUsage);
  return options;
}

}  // namespace sluice::bench
