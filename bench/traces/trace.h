// Struct Trace lists the buckets that one worker reduces in one step, with the times at which they are ready.
//
// Text format, written by `sluice bench replay --print-trace` and read by --trace and by the drivers of other
// libraries: one line "<ready_us> <bytes>" per bucket in the order of the reductions, both decimal integers.
// Empty lines and lines that start with '#' are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::bench {

// Gradients that are reduced by one operation.
struct Bucket {
  uint64_t ready_us = 0;  // time since the start of the step
  uint64_t bytes = 0;

  friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct Trace {
  std::vector<std::string> comments;  // without the '#'
  std::vector<Bucket> buckets;        // at least one; ready_us never decreases

  [[nodiscard]] uint64_t bytes() const;
  // Returns the time of the computation, which ends when the last bucket is ready.
  [[nodiscard]] uint64_t compute_us() const { return buckets.back().ready_us; }
};

inline constexpr size_t kMaxBuckets = 1'000'000;
inline constexpr uint64_t kMaxBucketBytes = uint64_t{64} << 30;
inline constexpr uint64_t kMaxReadyUs = 24ULL * 3600 * 1'000'000;

[[nodiscard]] std::string trace_text(const Trace& trace);
// The size of a bucket must be a multiple of `element_bytes`. Errors: kInvalidArgument; the text states
// `source` and the line.
[[nodiscard]] Result<Trace> parse_trace(std::string_view text, const std::string& source,
                                        uint64_t element_bytes);
// Errors: kInvalidArgument; kSystem when the file cannot be read.
[[nodiscard]] Result<Trace> read_trace(const std::string& path, uint64_t element_bytes);

// Returns the trace with all times multiplied by `factor`, which is not negative.
[[nodiscard]] Trace scale_times(Trace trace, double factor);

}  // namespace sluice::bench
