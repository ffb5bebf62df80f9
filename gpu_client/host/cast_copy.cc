#include "gpu_client/host/cast_copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace sluice::host {
namespace {

using pipeline::Cast;
using pipeline::CastError;
using pipeline::kScaleBlock;
using pipeline::Segment;
using pipeline::WireCast;

// Buffers of a caller's may be aligned to anything.
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

// Runs of elements of one segment and one scale block: body(segment, element in it, element in the piece,
// count).
template <typename Body>
void each_run(std::span<const Segment> segments, uint64_t first, Body&& body) {
  uint64_t in_piece = 0;
  for (const Segment& segment : segments) {
    for (uint64_t i = 0; i < segment.count;) {
      const uint64_t to_edge = kScaleBlock - (first + in_piece) % kScaleBlock;
      const uint64_t count = std::min(segment.count - i, to_edge);
      body(segment, i, in_piece, count);
      i += count;
      in_piece += count;
    }
  }
}

float scale_at(const Cast& cast, uint64_t in_piece, bool back) noexcept {
  const int32_t shift = pipeline::shift_of(cast.exponents[(cast.first + in_piece) / kScaleBlock], cast.top);
  return pipeline::power_of_two(back ? -shift : shift);
}

template <typename Back>
void measure(const std::byte* given, const std::byte* sent, uint64_t count, CastError& error,
             Back&& back) noexcept {
  for (uint64_t i = 0; i < count; ++i) {
    const double x = load<float>(given, i);
    const double y = back(load<uint16_t>(sent, i));
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    error.error_squares += (y - x) * (y - x);
    error.value_squares += x * x;
  }
}

}  // namespace

void gather(std::span<const Segment> segments, std::byte* staging, const Cast& cast,
            CastError& error) noexcept {
  if (cast.wire == WireCast::kNone) {
    for (const Segment& segment : segments) {
      const uint64_t bytes = segment.count * cast.element_bytes;
      std::memcpy(staging, segment.send, bytes);
      staging += bytes;
    }
    return;
  }
  const bool scaled = cast.wire == WireCast::kScaledF16;
  each_run(segments, cast.first, [&](const Segment& segment, uint64_t at, uint64_t in_piece, uint64_t count) {
    const std::byte* const from = segment.send + at * sizeof(float);
    std::byte* const to = staging + in_piece * sizeof(uint16_t);
    if (!scaled) {
      for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::to_bf16(load<float>(from, i)));
      if (cast.measure) measure(from, to, count, error, pipeline::from_bf16);
      return;
    }
    const float scale = scale_at(cast, in_piece, false);
    for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::to_f16(load<float>(from, i) * scale));
    if (!cast.measure) return;
    const float unscale = scale_at(cast, in_piece, true);
    measure(from, to, count, error, [unscale](uint16_t x) { return pipeline::from_f16(x) * unscale; });
  });
}

void scatter(const std::byte* staging, std::span<const Segment> segments, const Cast& cast) noexcept {
  if (cast.wire == WireCast::kNone) {
    for (const Segment& segment : segments) {
      const uint64_t bytes = segment.count * cast.element_bytes;
      std::memcpy(segment.recv, staging, bytes);
      staging += bytes;
    }
    return;
  }
  const bool scaled = cast.wire == WireCast::kScaledF16;
  each_run(segments, cast.first, [&](const Segment& segment, uint64_t at, uint64_t in_piece, uint64_t count) {
    const std::byte* const from = staging + in_piece * sizeof(uint16_t);
    std::byte* const to = segment.recv + at * sizeof(float);
    if (!scaled) {
      for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::from_bf16(load<uint16_t>(from, i)));
      return;
    }
    const float unscale = scale_at(cast, in_piece, true);
    for (uint64_t i = 0; i < count; ++i) store(to, i, pipeline::from_f16(load<uint16_t>(from, i)) * unscale);
  });
}

void find_exponents(std::span<const Segment> segments, uint8_t* exponents) noexcept {
  uint64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  std::fill_n(exponents, (count + kScaleBlock - 1) / kScaleBlock, uint8_t{0});
  each_run(segments, 0, [&](const Segment& segment, uint64_t at, uint64_t in_round, uint64_t run) {
    uint8_t& largest = exponents[in_round / kScaleBlock];
    const std::byte* const from = segment.send + at * sizeof(float);
    uint8_t most = largest;
    for (uint64_t i = 0; i < run; ++i) most = std::max(most, pipeline::exponent_of(load<float>(from, i)));
    largest = most;
  });
}

}  // namespace sluice::host
