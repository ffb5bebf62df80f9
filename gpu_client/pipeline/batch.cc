#include "gpu_client/pipeline/batch.h"

#include <algorithm>

#include "core/units.h"
#include "gpu_client/pipeline/segments.h"

namespace sluice::pipeline {
namespace {

// Elements of a tensor's part. Without parts `part` is 0.
uint64_t count_of(const Tensor& tensor, size_t part) noexcept {
  return tensor.counts.empty() ? tensor.count : tensor.counts[part];
}

bool can_append(const Batch& batch, const Tensor& tensor, uint64_t fusion_bytes) noexcept {
  if (batch.kind != tensor.kind || batch.root != tensor.root || batch.stream != tensor.stream ||
      batch.dtype != tensor.dtype || batch.op != tensor.op || batch.cast != tensor.cast)
    return false;
  if (!tensor.stageable || batch.count + tensor.count > kMaxBatchElements) return false;
  const WireUnit unit = batch.wire_unit();
  uint64_t units = 0;
  for (size_t p = 0; p < batch.parts.size(); ++p) {
    const Part& part = batch.parts[p];
    if (is_block(batch.cast) && part.ranges.size() == kMaxBlockRanges) return false;
    units += unit.count(part.count + count_of(tensor, p));
  }
  return units * unit.bytes <= fusion_bytes;
}

Batch make_empty_batch(const Tensor& tensor) {
  Batch batch;
  batch.parts.resize(tensor.counts.empty() ? 1 : tensor.counts.size());
  batch.send = tensor.send;
  batch.recv = tensor.recv;
  batch.kind = tensor.kind;
  batch.root = tensor.root;
  batch.dtype = tensor.dtype;
  batch.op = tensor.op;
  batch.stream = tensor.stream;
  batch.cast = tensor.cast;
  batch.staged = tensor.staged || tensor.cast != WireCast::kNone;
  return batch;
}

// Appends the elements of the tensor that are in the band, of which a unit has `unit_elements`.
void append(Batch& batch, const Tensor& tensor, const Band& band, uint64_t unit_elements, Rank rank) {
  const size_t size = wire::size_of(tensor.dtype);
  const bool is_gather = tensor.kind == wire::Kind::kAllGather;
  const bool is_scatter = tensor.kind == wire::Kind::kReduceScatter;
  uint64_t before = 0;  // elements of the parts before
  for (uint32_t p = 0; p < batch.parts.size(); ++p) {
    const uint64_t count = count_of(tensor, p);
    const uint64_t begin = band.begin * unit_elements;
    const uint64_t end = std::min(count, band.end * unit_elements);
    if (p >= band.first_part && p < band.end_part && begin < end) {
      const Rank owner = wire::has_parts(tensor.kind) ? p : tensor.root;
      // A buffer that has only this rank's part begins with that part.
      const uint64_t in_send = begin + (is_gather ? 0 : before);
      const uint64_t in_recv = begin + (is_scatter ? 0 : before);
      BufferRange range{.count = end - begin};
      if (wire::contributes(tensor.kind, owner, rank)) {
        range.send = tensor.send + in_send * size;
        if (tensor.residual != nullptr) range.residual = tensor.residual + in_send;
      }
      const bool is_own_part = is_gather && owner == rank;
      if (is_own_part || wire::receives(tensor.kind, owner, rank)) range.recv = tensor.recv + in_recv * size;
      if (is_own_part && range.recv == range.send) range.recv = nullptr;  // it is there
      batch.parts[p].ranges.push_back(range);
      batch.parts[p].count += range.count;
      batch.count += range.count;
    }
    before += count;
  }
}

// The bands of the batches into which a tensor is split, in units of the batch.
std::vector<Band> divide_into_batches(const Tensor& tensor, const Batch& batch) {
  const uint64_t elements = batch.wire_unit().elements;
  std::vector<uint64_t> units;
  for (size_t p = 0; p < batch.parts.size(); ++p) units.push_back(div_ceil(count_of(tensor, p), elements));
  const bool splits = batch.staged || !wire::has_parts(tensor.kind);
  return divide_into_bands(units, splits ? kMaxBatchElements / elements : ~uint64_t{0});
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

uint64_t Batch::units() const noexcept {
  const WireUnit unit = wire_unit();
  uint64_t sum = 0;
  for (const Part& part : parts) sum += unit.count(part.count);
  return sum;
}

bool Batch::has_result() const noexcept {
  return std::ranges::any_of(parts, [](const Part& part) {
    return std::ranges::any_of(part.ranges, [](const BufferRange& range) { return range.recv != nullptr; });
  });
}

std::vector<Batch> make_batches(const std::vector<Tensor>& tensors, uint64_t fusion_bytes, Rank rank) {
  std::vector<Batch> batches;
  bool appendable = false;  // the last batch
  for (const Tensor& tensor : tensors) {
    if (appendable && can_append(batches.back(), tensor, fusion_bytes)) {
      Batch& batch = batches.back();
      append(batch, tensor, {.end = ~uint64_t{0}, .end_part = ~uint32_t{0}}, 1, rank);
      batch.staged = true;  // the network needs one contiguous buffer
      continue;
    }
    Batch batch = make_empty_batch(tensor);
    const uint64_t unit_elements = batch.wire_unit().elements;
    const size_t size = wire::size_of(tensor.dtype);
    for (const Band& band : divide_into_batches(tensor, batch)) {
      Batch& part = batches.emplace_back(batch);
      append(part, tensor, band, unit_elements, rank);
      // Only operations without parts are split here.
      if (part.send != nullptr) part.send += band.begin * unit_elements * size;
      if (part.recv != nullptr) part.recv += band.begin * unit_elements * size;
    }
    appendable = tensor.stageable;
  }
  return batches;
}

}  // namespace sluice::pipeline
