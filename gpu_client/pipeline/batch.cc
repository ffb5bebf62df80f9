#include "gpu_client/pipeline/batch.h"

#include <algorithm>

#include "core/units.h"

namespace sluice::pipeline {
namespace {

constexpr uint32_t kSegmentMultiple = 64 * kKiB;
constexpr uint64_t kMinSegmentBytes = kMiB;
constexpr uint64_t kSegmentsPerBatch = 16;

bool can_append(const Batch& batch, const Tensor& tensor, uint64_t fusion_bytes) noexcept {
  const WireUnit unit = batch.wire_unit();
  if (is_block(batch.cast) && batch.ranges.size() == kMaxBlockRanges) return false;
  return batch.stream == tensor.stream && batch.dtype == tensor.dtype && batch.op == tensor.op &&
         batch.cast == tensor.cast && tensor.stageable && tensor.count <= kMaxBatchElements - batch.count &&
         unit.count(batch.count + tensor.count) * unit.bytes <= fusion_bytes;
}

}  // namespace

wire::DType Batch::wire_dtype() const noexcept {
  switch (cast) {
    case WireCast::kBf16: return wire::DType::kBf16;
    case WireCast::kScaledF16: return wire::DType::kF16;
    case WireCast::kMxfp8: return wire::DType::kMxfp8;
    case WireCast::kInt8Block: return wire::DType::kInt8Block;
    case WireCast::kNone: break;
  }
  return dtype;
}

WireUnit Batch::wire_unit() const noexcept {
  return Cast{.wire = cast, .element_bytes = static_cast<uint32_t>(wire::size_of(dtype))}.unit();
}

std::vector<Batch> make_batches(const std::vector<Tensor>& tensors, uint64_t fusion_bytes) {
  std::vector<Batch> batches;
  bool appendable = false;  // the last batch
  for (const Tensor& tensor : tensors) {
    if (appendable && can_append(batches.back(), tensor, fusion_bytes)) {
      Batch& batch = batches.back();
      batch.ranges.push_back({tensor.send, tensor.recv, tensor.count, tensor.residual});
      batch.count += tensor.count;
      batch.staged = true;  // the network needs one contiguous buffer
      continue;
    }
    const size_t size = wire::size_of(tensor.dtype);
    for (uint64_t first = 0; first < tensor.count; first += kMaxBatchElements) {
      Batch batch;
      batch.count = std::min(tensor.count - first, kMaxBatchElements);
      float* const residual = tensor.residual != nullptr ? tensor.residual + first : nullptr;
      batch.ranges.push_back({tensor.send + first * size, tensor.recv + first * size, batch.count, residual});
      batch.dtype = tensor.dtype;
      batch.op = tensor.op;
      batch.stream = tensor.stream;
      batch.cast = tensor.cast;
      batch.staged = tensor.staged || tensor.cast != WireCast::kNone;
      batches.push_back(std::move(batch));
    }
    appendable = tensor.stageable;
  }
  return batches;
}

uint64_t segment_elements(uint64_t batch_elements, WireUnit unit, uint32_t segment_bytes) noexcept {
  const uint64_t target =
      round_up(div_ceil(unit.count(batch_elements) * unit.bytes, kSegmentsPerBatch), kSegmentMultiple);
  const uint64_t min = std::min<uint64_t>(kMinSegmentBytes, segment_bytes);
  return std::clamp<uint64_t>(target, min, segment_bytes) / unit.bytes * unit.elements;
}

void slice_ranges(const std::vector<BufferRange>& ranges, uint64_t first, uint64_t count,
                  uint32_t element_bytes, std::vector<BufferRange>& out) {
  out.clear();
  for (const BufferRange& range : ranges) {
    if (count == 0) return;
    if (first >= range.count) {
      first -= range.count;
      continue;
    }
    const uint64_t part = std::min(range.count - first, count);
    float* const residual = range.residual != nullptr ? range.residual + first : nullptr;
    out.push_back({range.send + first * element_bytes, range.recv + first * element_bytes, part, residual});
    first = 0;
    count -= part;
  }
}

}  // namespace sluice::pipeline
