// A batch is what the pipeline reduces, or moves, as a unit: one operation, several operations of a group, or
// a part of an operation that is too large. Batches and their segments (segments.h) are pure functions of
// values on which all ranks agree (include/sluice/streams.h, "Order"). So all ranks issue the same operations
// on the network.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"
#include "wire/dtype.h"
#include "wire/frame.h"

namespace sluice::pipeline {

// One operation of the caller, validated. Its buffers are those of engine::OpRequest.
struct Tensor {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t count = 0;                 // elements of all parts, at least 1
  std::vector<uint64_t> counts = {};  // elements of each rank's part; empty without parts
  float* residual = nullptr;          // as in BufferRange, for all elements of `send`
  wire::Kind kind = wire::Kind::kAllreduce;
  Rank root = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;     // must be staged: the network cannot use the buffers in place
  bool stageable = false;  // may be staged: the device's copies can access the buffers
};

// One rank's part of a batch, or all of a batch without parts. A range that this rank does not contribute has
// no `send`, and one into which it copies nothing has no `recv`.
struct Part {
  std::vector<BufferRange> ranges;
  uint64_t count = 0;  // elements of all ranges
};

struct Batch {
  std::vector<Part> parts;  // with parts one for each rank, otherwise one
  uint64_t count = 0;       // elements of all parts
  // Buffers of the only tensor of a batch that is not staged.
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  wire::Kind kind = wire::Kind::kAllreduce;
  Rank root = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;

  [[nodiscard]] wire::DType wire_dtype() const noexcept;
  [[nodiscard]] WireUnit wire_unit() const noexcept;
  // Units of all parts. Each part is filled up to whole units, because a unit has one owner.
  [[nodiscard]] uint64_t units() const noexcept;
  // Whether this rank copies anything back.
  [[nodiscard]] bool has_result() const noexcept;
};

// A larger operation is split into several batches, so that the exponents of one fit into 16 KiB. An
// operation with parts that is not staged is never split.
inline constexpr uint64_t kMaxBatchElements = uint64_t{kScaleBlock} * 16384;

// Merges neighboring tensors with the same kind, root, stream, dtype, op and cast into batches of at most
// `fusion_bytes` on the wire, of a block type at most kMaxBlockRanges of them. Keeps the order. `rank`: this
// one.
[[nodiscard]] std::vector<Batch> make_batches(const std::vector<Tensor>& tensors, uint64_t fusion_bytes,
                                              Rank rank);

}  // namespace sluice::pipeline
