// What the pipeline reduces as one: an operation, several of a group put together, or a part of one that is
// too large. And how that is cut into pieces. Both are pure functions of what all ranks must agree on
// (streams.h, Order), so that all of them issue the same operations on the network.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"
#include "wire/dtype.h"

namespace sluice::pipeline {

// One operation as the caller gave it, checked.
struct Tensor {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t count = 0;  // not 0
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;     // the network can't take the buffers where they are
  bool stageable = false;  // the device's copies reach them
};

struct Round {
  std::vector<Segment> segments;
  uint64_t count = 0;  // of all segments
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;

  [[nodiscard]] wire::DType wire_dtype() const noexcept;
};

// More elements are cut into several rounds: the exponents of one fit in 16 KiB.
inline constexpr uint64_t kMostRoundElements = uint64_t{kScaleBlock} * 16384;

// Neighbours of one stream, dtype, op and cast are put together while the round is at most `fusion_bytes` on
// the wire; in the order given.
[[nodiscard]] std::vector<Round> make_rounds(const std::vector<Tensor>& tensors, uint64_t fusion_bytes);

// Elements of each piece but the last, which may be shorter. An eighth of the round, so that copying out,
// the network and copying back overlap, in multiples of 64 KiB on the wire; from 1 MiB, below which the
// network's chunks get small, to `piece_bytes`.
[[nodiscard]] uint64_t piece_elements(uint64_t round_elements, uint32_t wire_bytes,
                                      uint32_t piece_bytes) noexcept;

// The parts of `segments` that make up [first, first + count).
void take_segments(const std::vector<Segment>& segments, uint64_t first, uint64_t count,
                   uint32_t element_bytes, std::vector<Segment>& out);

}  // namespace sluice::pipeline
