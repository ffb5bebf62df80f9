// Parameters of the kernels, passed by value at each launch. Compiled by nvcc and by the C++ compiler.
#pragma once

#include <cstdint>

#include "gpu_client/pipeline/cast.h"

namespace sluice::cuda {

constexpr uint32_t kThreadsPerBlock = 256;
constexpr uint32_t kMaxRanges = 120;      // of one launch
constexpr uint64_t kTileElements = 4096;  // elements that a block converts at a time
constexpr uint64_t kTileBytes = 16384;    // bytes that a block copies at a time

// A contiguous range of memory. `first` and `count` are elements; for gather_bytes and scatter_bytes they are
// bytes.
struct LaunchRange {
  uint8_t* memory;  // of the GPU
  uint64_t first;   // index in the segment; for find_exponents in the batch
  uint64_t count;
  float* residual;  // as in pipeline::BufferRange
};

// The ranges follow each other without gaps in the segment or batch.
struct Launch {
  uint8_t* staging;            // of the segment
  const uint8_t* exponents;    // kScaledF16: as in pipeline::Cast
  uint8_t* found;              // output of find_exponents
  pipeline::CastError* error;  // receives the errors if `measure`
  uint64_t batch_first;        // index in the batch of the segment's first element
  uint64_t total;              // of all ranges
  int32_t exponent_limit;
  pipeline::WireCast wire;
  bool measure;
  bool stochastic;
  uint64_t seed;
  uint32_t count;  // of ranges
  LaunchRange ranges[kMaxRanges];
};

static_assert(pipeline::kMaxBlockRanges <= kMaxRanges);
// All drivers accept 4 KiB of parameters.
static_assert(sizeof(Launch) <= 4096);

}  // namespace sluice::cuda
