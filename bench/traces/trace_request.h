// Struct TraceRequest describes a trace by model or file; trace_of() builds the trace.
#pragma once

#include <string>

#include "bench/traces/buckets.h"

namespace sluice::bench {

enum class Bucketing { kDdp, kHorovod, kNone };

struct TraceRequest {
  std::string model;  // name in all_models()
  Nanos step = 0;     // 0: assumed_step_time()
  Bucketing bucketing = Bucketing::kDdp;
  DdpOptions ddp;
  HorovodOptions horovod;
  std::string file;  // trace file; if set, the members above are ignored
  uint64_t element_bytes = 4;
  double compute_scale = 1;  // factor of all times after bucketing; 0: all buckets are ready at the start
};

// The comments of the trace state its source and the assumptions. Errors: kInvalidArgument, kSystem.
[[nodiscard]] Result<Trace> trace_of(const TraceRequest& request);

// Returns the table of `sluice bench replay --list`: sizes and buckets of all models for gradients of
// `element_bytes`, with the defaults of the frameworks.
[[nodiscard]] std::string model_list(uint64_t element_bytes);

}  // namespace sluice::bench
