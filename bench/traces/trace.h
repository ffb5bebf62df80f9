// A trace: what one worker asks to be reduced in one step, and when. As text, which `sluice bench replay
// --print-trace` writes and --trace reads, and which drivers of other systems play as well: lines
// "<ready_us> <bytes>", one per bucket in the order in which they are sent, both whole numbers in decimal;
// empty lines and lines that begin with '#' say nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::bench {

// Gradients that are reduced by one operation.
struct Bucket {
  uint64_t ready_us = 0;  // from the begin of the step
  uint64_t bytes = 0;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct Trace {
  std::vector<std::string> comments;  // lines without '#'
  std::vector<Bucket> buckets;        // at least one; ready_us never decreases

  [[nodiscard]] uint64_t bytes() const;
  // The computation ends when the last bucket is ready.
  [[nodiscard]] uint64_t compute_us() const { return buckets.back().ready_us; }
};

inline constexpr size_t kMaxBuckets = 1'000'000;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{64} << 30;
inline constexpr uint64_t kMaxReadyUs = 24ULL * 3600 * 1'000'000;

[[nodiscard]] std::string trace_text(const Trace& trace);
// Buckets are whole numbers of elements. kInvalidArgument names `source` and the line.
[[nodiscard]] Result<Trace> parse_trace(std::string_view text, const std::string& source,
                                        uint64_t element_bytes);
// kInvalidArgument, kSystem when the file cannot be read.
[[nodiscard]] Result<Trace> read_trace(const std::string& path, uint64_t element_bytes);

// The same buckets with all times multiplied by `factor`, at least 0.
[[nodiscard]] Trace stretched(Trace trace, double factor);

}  // namespace sluice::bench
