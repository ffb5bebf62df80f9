#include "bench/e2e/star_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/units.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kMagic = 0x3152415453434c53;  // "SLCSTAR1"
constexpr uint64_t kMostBytes = 4 * kGiB;        // of slots for all workers; untouched ones cost nothing

}  // namespace

StarGreeting greeting_of(const StarShape& shape) noexcept {
  StarGreeting greeting{};
  store_le(greeting.data(), kMagic);
  store_le(greeting.data() + 8, shape.workers);
  store_le(greeting.data() + 12, shape.slots);
  store_le(greeting.data() + 16, shape.chunk_bytes);
  return greeting;
}

Result<StarShape> shape_of(const StarGreeting& greeting) {
  if (load_le<uint64_t>(greeting.data()) != kMagic)
    return fail(Errc::kInvalidArgument, "it does not speak as a star's worker");
  const StarShape shape{.workers = load_le<uint32_t>(greeting.data() + 8),
                        .slots = load_le<uint32_t>(greeting.data() + 12),
                        .chunk_bytes = load_le<uint64_t>(greeting.data() + 16)};
  // Divided step by step: the product of three such numbers may not fit.
  if (shape.workers == 0 || shape.slots == 0 || shape.chunk_bytes == 0 ||
      shape.chunk_bytes > kMostBytes / shape.workers / shape.slots) {
    return fail(Errc::kInvalidArgument, fmt::format("{} workers with {} slots of {} bytes can't be served",
                                                    shape.workers, shape.slots, shape.chunk_bytes));
  }
  return shape;
}

uint32_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept {
  return static_cast<uint32_t>(std::clamp<uint64_t>(window_bytes / chunk_bytes, 2, UINT32_MAX));
}

}  // namespace sluice::bench
