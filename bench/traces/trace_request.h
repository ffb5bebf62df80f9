// From what somebody asks for to the trace that is played.
#pragma once

#include <string>

#include "bench/traces/buckets.h"

namespace sluice::bench {

enum class Bucketing { kDdp, kHorovod, kNone };

struct TraceRequest {
  std::string model;  // of all_models()
  Nanos step = 0;     // 0: assumed_step_time()
  Bucketing bucketing = Bucketing::kDdp;
  DdpOptions ddp;
  HorovodOptions horovod;
  std::string file;  // a trace to read; then everything above means nothing
  uint64_t element_bytes = 4;
  double compute_scale = 1;  // multiplies all times, once buckets are made; 0: everything is ready at once
};

// Its comments say what it is of and what was assumed. kInvalidArgument, kSystem.
[[nodiscard]] Result<Trace> trace_of(const TraceRequest& request);

}  // namespace sluice::bench
