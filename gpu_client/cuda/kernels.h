// What the kernels are told: by value, in the parameters of a launch. For nvcc and the C++ compiler alike.
#pragma once

#include <cstdint>

#include "gpu_client/pipeline/cast.h"

namespace sluice::cuda {

constexpr uint32_t kThreads = 256;  // of a block
constexpr uint32_t kParts = 160;    // of a launch
constexpr uint64_t kTile = 4096;    // elements that a block copies at a time
constexpr uint64_t kTileBytes = 16384;

// Part of a launch that lies in one piece. In elements; gather_bytes and scatter_bytes count bytes.
struct Part {
  uint8_t* memory;  // of the GPU
  uint64_t first;   // where it begins in the piece, or in the round where exponents are searched
  uint64_t count;
};

// Parts follow each other without gaps.
struct Launch {
  uint8_t* staging;          // of the piece
  const uint8_t* exponents;  // kScaledF16, as in pipeline::Cast
  uint8_t* found;            // exponents that are searched
  pipeline::CastError* error;
  uint64_t round_first;  // the piece's first element in the round
  uint64_t total;        // of all parts
  int32_t top;
  pipeline::WireCast wire;
  bool measure;
  uint32_t count;  // of parts
  Part parts[kParts];
};

// What every driver takes.
static_assert(sizeof(Launch) <= 4096);

}  // namespace sluice::cuda
