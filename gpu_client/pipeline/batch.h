// Batches and segments. A batch is what the pipeline reduces as a unit: one operation, several operations of
// a group, or a part of an operation that is too large. A segment is a part of a batch that is copied and
// reduced at once. Both are pure functions of values on which all ranks agree (include/sluice/streams.h,
// "Order"). So all ranks issue the same operations on the network.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_client/pipeline/cast.h"
#include "gpu_client/pipeline/device.h"
#include "wire/dtype.h"

namespace sluice::pipeline {

// One operation of the caller, validated.
struct Tensor {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t count = 0;         // elements, at least 1
  float* residual = nullptr;  // as in BufferRange
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;     // must be staged: the network cannot use the buffers in place
  bool stageable = false;  // may be staged: the device's copies can access the buffers
};

struct Batch {
  std::vector<BufferRange> ranges;
  uint64_t count = 0;  // elements of all ranges
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Device::Stream stream = nullptr;
  WireCast cast = WireCast::kNone;
  bool staged = false;

  [[nodiscard]] wire::DType wire_dtype() const noexcept;
  [[nodiscard]] WireUnit wire_unit() const noexcept;
};

// A larger operation is split into several batches, so that the exponents of one fit into 16 KiB.
inline constexpr uint64_t kMaxBatchElements = uint64_t{kScaleBlock} * 16384;

// Merges neighboring tensors with the same stream, dtype, op and cast into batches of at most `fusion_bytes`
// on the wire, of a block type at most kMaxBlockRanges of them. Keeps the order.
[[nodiscard]] std::vector<Batch> make_batches(const std::vector<Tensor>& tensors, uint64_t fusion_bytes);

// Returns the number of elements of each segment of a batch; the last segment may be shorter. A segment is a
// sixteenth of the batch, so that the copies and the network overlap. Its size on the wire is a multiple of
// 64 KiB, from 1 MiB to `segment_bytes`, rounded down to whole units. Below 1 MiB the network's chunks would
// become small.
[[nodiscard]] uint64_t segment_elements(uint64_t batch_elements, WireUnit unit,
                                        uint32_t segment_bytes) noexcept;

// Sets `out` to the parts of `ranges` that contain the elements [first, first + count).
void slice_ranges(const std::vector<BufferRange>& ranges, uint64_t first, uint64_t count,
                  uint32_t element_bytes, std::vector<BufferRange>& out);

}  // namespace sluice::pipeline
