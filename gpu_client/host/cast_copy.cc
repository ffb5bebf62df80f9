#include "gpu_client/host/cast_copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu_client/host/block_copy.h"

namespace sluice::host {
namespace {

using pipeline::BufferRange;
using pipeline::Cast;
using pipeline::CastError;
using pipeline::kScaleBlock;
using pipeline::WireCast;

// Callers' buffers may have any alignment.
template <typename T>
T load(const std::byte* at, uint64_t i) noexcept {
  T x;
  std::memcpy(&x, at + i * sizeof(T), sizeof(T));
  return x;
}
template <typename T>
void store(std::byte* at, uint64_t i, T x) noexcept {
  std::memcpy(at + i * sizeof(T), &x, sizeof(T));
}

// Calls body(range, index in the range, index in the segment, count) for each run of elements that lie in one
// range and in one scale block. `first` is the index in the batch of the first element.
template <typename Body>
void each_run(std::span<const BufferRange> ranges, uint64_t first, Body&& body) {
  uint64_t in_segment = 0;
  for (const BufferRange& range : ranges) {
    for (uint64_t i = 0; i < range.count;) {
      const uint64_t to_block_end = kScaleBlock - (first + in_segment) % kScaleBlock;
      const uint64_t count = std::min(range.count - i, to_block_end);
      body(range, i, in_segment, count);
      i += count;
      in_segment += count;
    }
  }
}

// Returns the power of two for an element of the segment: for the way out, or for the way back.
float scale_at(const Cast& cast, uint64_t in_segment, bool inverse) noexcept {
  const int32_t shift =
      pipeline::scale_shift(cast.exponents[(cast.first + in_segment) / kScaleBlock], cast.exponent_limit);
  return power_of_two(inverse ? -shift : shift);
}

// Adds the errors of `count` elements to `error`. `restore` converts an element on the wire back to f32.
template <typename Restore>
void measure(const std::byte* values, const std::byte* sent, uint64_t count, CastError& error,
             Restore&& restore) noexcept {
  for (uint64_t i = 0; i < count; ++i) {
    const double x = load<float>(values, i);
    const double y = restore(load<uint16_t>(sent, i));
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    error.error_squares += (y - x) * (y - x);
    error.value_squares += x * x;
  }
}

}  // namespace

void gather(std::span<const BufferRange> ranges, std::byte* staging, const Cast& cast,
            CastError& error) noexcept {
  if (pipeline::is_block(cast.wire)) return gather_blocks(ranges, staging, cast, error);
  if (cast.wire == WireCast::kNone) {
    for (const BufferRange& range : ranges) {
      const uint64_t bytes = range.count * cast.element_bytes;
      std::memcpy(staging, range.send, bytes);
      staging += bytes;
    }
    return;
  }
  const bool scaled = cast.wire == WireCast::kScaledF16;
  each_run(
      ranges, cast.first, [&](const BufferRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
        const std::byte* const from = range.send + at * sizeof(float);
        std::byte* const to = staging + in_segment * sizeof(uint16_t);
        if (!scaled) {
          for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::to_bf16(load<float>(from, i)));
          if (cast.measure) measure(from, to, count, error, pipeline::from_bf16);
          return;
        }
        const float scale = scale_at(cast, in_segment, false);
        for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::to_f16(load<float>(from, i) * scale));
        if (!cast.measure) return;
        const float unscale = scale_at(cast, in_segment, true);
        measure(from, to, count, error, [unscale](uint16_t x) { return pipeline::from_f16(x) * unscale; });
      });
}

void scatter(const std::byte* staging, std::span<const BufferRange> ranges, const Cast& cast) noexcept {
  if (pipeline::is_block(cast.wire)) return scatter_blocks(staging, ranges, cast);
  if (cast.wire == WireCast::kNone) {
    for (const BufferRange& range : ranges) {
      const uint64_t bytes = range.count * cast.element_bytes;
      std::memcpy(range.recv, staging, bytes);
      staging += bytes;
    }
    return;
  }
  const bool scaled = cast.wire == WireCast::kScaledF16;
  each_run(ranges, cast.first,
           [&](const BufferRange& range, uint64_t at, uint64_t in_segment, uint64_t count) {
             const std::byte* const from = staging + in_segment * sizeof(uint16_t);
             std::byte* const to = range.recv + at * sizeof(float);
             if (!scaled) {
               for (uint64_t i = 0; i < count; ++i)
                 store(to, i, pipeline::from_bf16(load<uint16_t>(from, i)));
               return;
             }
             const float unscale = scale_at(cast, in_segment, true);
             for (uint64_t i = 0; i < count; ++i)
               store(to, i, pipeline::from_f16(load<uint16_t>(from, i)) * unscale);
           });
}

void find_exponents(std::span<const BufferRange> ranges, uint8_t* exponents) noexcept {
  uint64_t count = 0;
  for (const BufferRange& range : ranges) count += range.count;
  std::fill_n(exponents, (count + kScaleBlock - 1) / kScaleBlock, uint8_t{0});
  each_run(ranges, 0, [&](const BufferRange& range, uint64_t at, uint64_t in_batch, uint64_t run) {
    uint8_t& largest = exponents[in_batch / kScaleBlock];
    const std::byte* const from = range.send + at * sizeof(float);
    uint8_t max = largest;
    for (uint64_t i = 0; i < run; ++i) max = std::max(max, pipeline::exponent_of(load<float>(from, i)));
    largest = max;
  });
}

}  // namespace sluice::host
