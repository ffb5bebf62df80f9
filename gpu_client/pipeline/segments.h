// Segments are the parts of a batch that are copied and sent at once. Each is one operation on the network.
//
// A segment of a reduce-scatter or all-gather has elements of all ranks' parts: a band of the same places in
// each part, as far as the part is long enough. One part after another would keep the link of one rank busy
// while the others wait.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu_client/pipeline/batch.h"

namespace sluice::pipeline {

// The units [begin, end) of each of the parts [first_part, end_part), as far as these have them.
struct Band {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t first_part = 0;
  uint32_t end_part = 0;
  uint64_t first = 0;  // units of all bands before it
  uint64_t count = 0;  // units of all its parts

  // The units of a part, which has `units`, that are in the band.
  [[nodiscard]] uint64_t units_of(uint32_t part, uint64_t units) const noexcept {
    const uint64_t last = units < end ? units : end;
    return part < first_part || part >= end_part || last <= begin ? 0 : last - begin;
  }
};

// Divides parts of these lengths, in units, into bands of at most `most` units, at least 1. The bands are as
// few as whole bands allow, and cover the parts in ascending order.
[[nodiscard]] std::vector<Band> divide_into_bands(std::span<const uint64_t> units, uint64_t most);

// Returns the number of units of each segment of a batch of `batch_units`; the last segment may have fewer. A
// segment is a sixteenth of the batch, so that the copies and the network overlap. Its size on the wire is a
// multiple of 64 KiB, from 1 MiB to `segment_bytes`, rounded down to whole units. Below 1 MiB the network's
// chunks would become small.
[[nodiscard]] uint64_t segment_units(uint64_t batch_units, WireUnit unit, uint32_t segment_bytes) noexcept;

// Returns the segments of a batch.
[[nodiscard]] std::vector<Band> divide_into_segments(const Batch& batch, uint32_t segment_bytes);

// Consecutive ranges of a segment that one call of the device copies.
struct Run {
  uint64_t first = 0;  // units of the segment before it
  uint64_t units = 0;
  uint64_t elements = 0;
  size_t first_range = 0;
  size_t range_count = 0;
};

enum class Side : uint8_t { kSend, kRecv };

// Appends the parts of the batch's ranges that are in the band and have a buffer on `side` to `ranges`, and
// their runs to `runs`. A new run begins behind what has no such buffer, behind a unit that is not full, and
// with a block type after kMaxBlockRanges ranges.
void append_runs(const Batch& batch, const Band& band, Side side, std::vector<BufferRange>& ranges,
                 std::vector<Run>& runs);

}  // namespace sluice::pipeline
