#include "gpu_client/pipeline/segments.h"

#include <algorithm>

#include "core/units.h"

namespace sluice::pipeline {
namespace {

constexpr uint32_t kSegmentMultiple = 64 * kKiB;
constexpr uint64_t kMinSegmentBytes = kMiB;
constexpr uint64_t kSegmentsPerBatch = 16;

// Appends bands of one unit of each part that is longer than `begin`: together they have more than `most`.
void append_narrow_bands(std::span<const uint64_t> units, uint64_t most, uint64_t begin,
                         std::vector<Band>& bands) {
  const auto parts = static_cast<uint32_t>(units.size());
  uint32_t first_part = 0;
  uint64_t count = 0;
  const auto append = [&](uint32_t end_part) {
    const uint64_t first = bands.empty() ? 0 : bands.back().first + bands.back().count;
    bands.push_back({.begin = begin,
                     .end = begin + 1,
                     .first_part = first_part,
                     .end_part = end_part,
                     .first = first,
                     .count = count});
    first_part = end_part;
    count = 0;
  };
  for (uint32_t part = 0; part < parts; ++part) {
    if (units[part] > begin && ++count == most) append(part + 1);
  }
  if (count > 0) append(parts);
}

}  // namespace

std::vector<Band> divide_into_bands(std::span<const uint64_t> units, uint64_t most) {
  std::vector<Band> bands;
  std::vector<uint64_t> lengths(units.begin(), units.end());
  std::ranges::sort(lengths);
  const auto first_beyond = [&lengths](uint64_t place) {
    return std::ranges::upper_bound(lengths, place) - lengths.begin();
  };
  uint64_t begin = 0;
  while (!lengths.empty() && begin < lengths.back()) {
    uint64_t end = begin;
    uint64_t left = most;
    for (size_t i = first_beyond(end); i < lengths.size(); i = first_beyond(end)) {
      const uint64_t active = lengths.size() - i;
      const uint64_t step = std::min(lengths[i] - end, left / active);
      if (step == 0) break;
      end += step;
      left -= step * active;
    }
    if (end == begin) {
      append_narrow_bands(units, most, begin, bands);
      end = begin + 1;
    } else {
      const uint64_t first = bands.empty() ? 0 : bands.back().first + bands.back().count;
      bands.push_back({.begin = begin,
                       .end = end,
                       .first_part = 0,
                       .end_part = static_cast<uint32_t>(units.size()),
                       .first = first,
                       .count = most - left});
    }
    begin = end;
  }
  return bands;
}

uint64_t segment_units(uint64_t batch_units, WireUnit unit, uint32_t segment_bytes) noexcept {
  const uint64_t target = round_up(div_ceil(batch_units * unit.bytes, kSegmentsPerBatch), kSegmentMultiple);
  const uint64_t min = std::min<uint64_t>(kMinSegmentBytes, segment_bytes);
  return std::clamp<uint64_t>(target, min, segment_bytes) / unit.bytes;
}

std::vector<Band> divide_into_segments(const Batch& batch, uint32_t segment_bytes) {
  const WireUnit unit = batch.wire_unit();
  std::vector<uint64_t> units;
  units.reserve(batch.parts.size());
  for (const Part& part : batch.parts) units.push_back(unit.count(part.count));
  return divide_into_bands(units, segment_units(batch.units(), unit, segment_bytes));
}

void append_runs(const Batch& batch, const Band& band, Side side, std::vector<BufferRange>& ranges,
                 std::vector<Run>& runs) {
  const WireUnit unit = batch.wire_unit();
  const uint64_t element_bytes = wire::size_of(batch.dtype);
  uint64_t before = 0;  // units of the parts before
  bool is_open = false;
  for (uint32_t p = band.first_part; p < band.end_part; ++p) {
    const Part& part = batch.parts[p];
    const uint64_t begin = band.begin * unit.elements;
    const uint64_t end = std::min(part.count, band.end * unit.elements);
    if (begin >= end) continue;
    if (is_block(batch.cast) && is_open && runs.back().range_count + part.ranges.size() > kMaxBlockRanges)
      is_open = false;
    uint64_t at = 0;  // of the range, in the part
    for (const BufferRange& range : part.ranges) {
      const uint64_t first = std::max(begin, at);
      const uint64_t last = std::min(end, at + range.count);
      const uint64_t skipped = first - at;
      at += range.count;
      if (first >= last) continue;
      if ((side == Side::kSend ? range.send : range.recv) == nullptr) {
        is_open = false;
        continue;
      }
      if (!is_open) {
        runs.push_back(
            {.first = before + unit.count(first - begin), .first_range = ranges.size(), .range_count = 0});
        is_open = true;
      }
      const uint64_t bytes = skipped * element_bytes;
      ranges.push_back({.send = range.send != nullptr ? range.send + bytes : nullptr,
                        .recv = range.recv != nullptr ? range.recv + bytes : nullptr,
                        .count = last - first,
                        .residual = range.residual != nullptr ? range.residual + skipped : nullptr});
      Run& run = runs.back();
      ++run.range_count;
      run.elements += last - first;
      run.units = unit.count(run.elements);
    }
    before += unit.count(end - begin);
    if ((end - begin) % unit.elements != 0) is_open = false;
  }
}

}  // namespace sluice::pipeline
