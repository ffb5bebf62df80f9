#include "bench/e2e/star/star_shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/units.h"

namespace sluice::bench {
namespace {

constexpr uint64_t kMagic = 0x3152415453434c53;  // "SLCSTAR1"
constexpr uint64_t kMaxSlotBytes = 4 * kGiB;     // of all workers; untouched slots use no memory

}  // namespace

StarHandshake encode_handshake(const StarShape& shape) noexcept {
  StarHandshake handshake{};
  store_le(handshake.data(), kMagic);
  store_le(handshake.data() + 8, shape.workers);
  store_le(handshake.data() + 12, shape.slots);
  store_le(handshake.data() + 16, shape.chunk_bytes);
  return handshake;
}

Result<StarShape> decode_handshake(const StarHandshake& handshake) {
  if (load_le<uint64_t>(handshake.data()) != kMagic)
    return fail(Errc::kInvalidArgument, "the handshake is not that of a star worker");
  const StarShape shape{.workers = load_le<uint32_t>(handshake.data() + 8),
                        .slots = load_le<uint32_t>(handshake.data() + 12),
                        .chunk_bytes = load_le<uint64_t>(handshake.data() + 16)};
  // Divides step by step, because the product of the three numbers may overflow.
  if (shape.workers == 0 || shape.slots == 0 || shape.chunk_bytes == 0 ||
      shape.chunk_bytes > kMaxSlotBytes / shape.workers / shape.slots) {
    return fail(Errc::kInvalidArgument,
                fmt::format("{} workers with {} slots of {} B exceed the limit of 4 GiB", shape.workers,
                            shape.slots, shape.chunk_bytes));
  }
  return shape;
}

uint32_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept {
  return static_cast<uint32_t>(std::clamp<uint64_t>(window_bytes / chunk_bytes, 2, UINT32_MAX));
}

}  // namespace sluice::bench
