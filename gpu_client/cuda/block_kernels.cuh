// Kernels that convert between f32 in GPU memory and blocks in pinned host memory. Part of kernels.cu, whose
// functions and rules they use.
//
// A thread converts a whole group of values, since the scale depends on all of them. Not yet tuned on a GPU.
#pragma once

#include "wire/payload/block_format.h"

namespace {

using sluice::wire::Int8Block;
using sluice::wire::Mxfp8;

// Reads and writes the elements of a segment in ascending order.
struct ElementCursor {
  const Launch& launch;
  uint32_t range;

  __device__ ElementCursor(const Launch& l, uint64_t first) : launch(l), range(range_index(l, first)) {}
  __device__ uint64_t place(uint64_t at) {
    while (at >= launch.ranges[range].first + launch.ranges[range].count) ++range;
    return at - launch.ranges[range].first;
  }
  // The value with its residual.
  __device__ float load_value(uint64_t at) {
    const uint64_t i = place(at);
    const LaunchRange& r = launch.ranges[range];
    const float x = load_anywhere<float>(r.memory + i * sizeof(float));
    return r.residual == nullptr ? x : x + r.residual[i];
  }
  __device__ void store_residual(uint64_t at, float rest) {
    const uint64_t i = place(at);
    float* const residual = launch.ranges[range].residual;
    if (residual != nullptr) residual[i] = sluice::is_finite(rest) ? rest : 0.0F;
  }
  __device__ void store_value(uint64_t at, float x) {
    const uint64_t i = place(at);
    store_anywhere(launch.ranges[range].memory + i * sizeof(float), x);
  }
};

__device__ inline uint8_t* block_at(const Launch& launch, uint64_t element) {
  return launch.staging + element / sluice::wire::kBlockValues * sluice::wire::kBlockBytes;
}

// The scale of a group: how its values become codes and codes become values.
struct Mxfp8Scale {
  uint8_t code;
  float inverse;
  float scale;

  __device__ Mxfp8Scale(float largest, bool) : code(Mxfp8::scale_code(largest)) {
    inverse = Mxfp8::inverse(code);
    scale = Mxfp8::scale(code);
  }
  __device__ explicit Mxfp8Scale(const uint8_t* block, uint32_t group) : code(block[group]) {
    inverse = 0;
    scale = Mxfp8::scale(code);
  }
  __device__ void store_in(uint8_t* block, uint32_t group) const { block[group] = code; }
  __device__ uint8_t encode(float x) const { return Mxfp8::encode(x * inverse); }
  __device__ uint8_t encode(float x, uint32_t random) const { return Mxfp8::encode(x * inverse, random); }
  __device__ float decode(uint8_t c) const { return Mxfp8::value(c, scale); }
};

struct Int8Scale {
  float inverse;
  float scale;

  __device__ Int8Scale(float largest, bool finite) {
    scale = finite ? Int8Block::scale(largest) : sluice::float_of(Int8Block::kScaleNan);
    inverse = finite ? Int8Block::inverse(scale) : 0.0F;
  }
  __device__ explicit Int8Scale(const uint8_t* block, uint32_t group) {
    inverse = 0;
    scale = load<float>(block + group * sizeof(float));
  }
  __device__ void store_in(uint8_t* block, uint32_t group) const {
    store(block + group * sizeof(float), scale);
  }
  // All codes of a group are 0 if a value is not finite.
  __device__ uint8_t encode(float x) const {
    return inverse == 0 ? 0 : static_cast<uint8_t>(Int8Block::encode(x * inverse));
  }
  __device__ uint8_t encode(float x, uint32_t random) const {
    return inverse == 0 ? 0 : static_cast<uint8_t>(Int8Block::encode(x * inverse, random));
  }
  __device__ float decode(uint8_t c) const { return Int8Block::value(static_cast<int8_t>(c), scale); }
};

struct BlockError {
  CastError sum;
  __device__ void add(float x, float decoded) {
    if (!sluice::is_finite(x) || !sluice::is_finite(decoded)) return;
    const double value = x, error = static_cast<double>(decoded) - value;
    sum.error_squares += error * error;
    sum.value_squares += value * value;
  }
};

template <typename Format, typename Scale>
__device__ inline void gather_group(const Launch& launch, uint64_t first, BlockError& error) {
  const uint64_t end = min_u64(first + Format::kGroup, launch.total);
  uint32_t largest = 0, largest_of_all = 0;
  ElementCursor reader(launch, first);
  for (uint64_t at = first; at < end; ++at) {
    const uint32_t magnitude = sluice::bits_of(reader.load_value(at)) & 0x7fffffff;
    largest_of_all = magnitude > largest_of_all ? magnitude : largest_of_all;
    if (magnitude < 0x7f800000 && magnitude > largest) largest = magnitude;
  }
  const Scale scale(sluice::float_of(largest), largest_of_all < 0x7f800000);
  uint8_t* const block = block_at(launch, first);
  const uint32_t in_block = static_cast<uint32_t>(first % sluice::wire::kBlockValues);
  scale.store_in(block, in_block / Format::kGroup);
  uint8_t* const codes = block + sluice::wire::kBlockScaleBytes + in_block;
  ElementCursor again(launch, first);
  for (uint32_t i = 0; i < Format::kGroup; i += 4) {
    uint32_t four = 0;  // wider writes over PCIe cost less
    for (uint32_t k = 0; k < 4; ++k) {
      const uint64_t at = first + i + k;
      if (at >= end) break;
      const float x = again.load_value(at);
      const uint8_t code =
          launch.stochastic ? scale.encode(x, sluice::wire::random_bits(launch.seed, launch.batch_first + at))
                            : scale.encode(x);
      const float decoded = scale.decode(code);
      again.store_residual(at, x - decoded);
      if (launch.measure) error.add(x, decoded);
      four |= static_cast<uint32_t>(code) << (8 * k);
    }
    store(codes + i, four);
  }
}

// The groups of the segment, those that pad its last block included.
template <typename Format, typename Body>
__device__ inline void each_group(const Launch& launch, Body&& body) {
  const uint64_t blocks = (launch.total + sluice::wire::kBlockValues - 1) / sluice::wire::kBlockValues;
  const uint64_t groups = blocks * (sluice::wire::kBlockValues / Format::kGroup);
  for (uint64_t g = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; g < groups;
       g += uint64_t{gridDim.x} * blockDim.x)
    body(g * Format::kGroup);
}

template <typename Format, typename Scale>
__device__ inline void gather_as_blocks(const Launch& launch) {
  BlockError mine;
  each_group<Format>(launch, [&](uint64_t first) {
    if (first < launch.total) return gather_group<Format, Scale>(launch, first, mine);
    uint8_t* const block = block_at(launch, first);
    const uint32_t in_block = static_cast<uint32_t>(first % sluice::wire::kBlockValues);
    Scale(0, true).store_in(block, in_block / Format::kGroup);
    for (uint32_t i = 0; i < Format::kGroup; i += 4)
      store(block + sluice::wire::kBlockScaleBytes + in_block + i, uint32_t{0});
  });
  if (launch.measure) add_errors(launch.error, mine.sum);
}

template <typename Format, typename Scale>
__device__ inline void scatter_blocks_as(const Launch& launch) {
  each_group<Format>(launch, [&](uint64_t first) {
    if (first >= launch.total) return;
    const uint8_t* const block = block_at(launch, first);
    const uint32_t in_block = static_cast<uint32_t>(first % sluice::wire::kBlockValues);
    const Scale scale(block, in_block / Format::kGroup);
    const uint8_t* const codes = block + sluice::wire::kBlockScaleBytes + in_block;
    const uint64_t end = min_u64(first + Format::kGroup, launch.total);
    ElementCursor writer(launch, first);
    for (uint64_t at = first; at < end; ++at) writer.store_value(at, scale.decode(codes[at - first]));
  });
}

}  // namespace

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    gather_blocks(const Launch launch) {
  if (launch.wire == WireCast::kMxfp8)
    gather_as_blocks<Mxfp8, Mxfp8Scale>(launch);
  else
    gather_as_blocks<Int8Block, Int8Scale>(launch);
}

extern "C" __global__ void __launch_bounds__(sluice::cuda::kThreadsPerBlock)
    scatter_blocks(const Launch launch) {
  if (launch.wire == WireCast::kMxfp8)
    scatter_blocks_as<Mxfp8, Mxfp8Scale>(launch);
  else
    scatter_blocks_as<Int8Block, Int8Scale>(launch);
}
