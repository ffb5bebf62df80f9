#include "config/sizing/session_memory.h"

#include <algorithm>

#include "core/units.h"

namespace sluice::config {
namespace {

constexpr uint64_t kWindow = 2 * kMiB;
constexpr uint64_t kHeader = 64;
constexpr uint64_t kRanksPerGroup = 8;
constexpr uint64_t kPage = 4 * kKiB;

uint64_t slot_bytes(uint64_t ranks, uint64_t connections) {
  uint64_t bytes = 128 * kKiB;
  while (bytes > 16 * kKiB && bytes * std::max(ranks, connections) > 128 * kKiB) bytes /= 2;
  return bytes;
}

}  // namespace

uint64_t session_bytes(uint64_t ranks, uint64_t reducers, uint64_t lanes) noexcept {
  const uint64_t slot = slot_bytes(ranks, reducers * lanes);
  const uint64_t slots = std::max<uint64_t>(2, kWindow / slot / lanes);
  const uint64_t stride = slot + kHeader + kCacheLine;
  const uint64_t bytes_per_rank = round_up(slots * stride, kPage) + 2 * kCacheLine;
  const uint64_t groups = div_ceil(ranks, kRanksPerGroup);
  const uint64_t partials = groups > 1 ? slots * groups * (2 * slot + kCacheLine) : 0;
  return lanes * (ranks * bytes_per_rank + slots * stride + partials);
}

uint64_t resident_bytes(uint64_t sessions, uint64_t ranks, uint64_t lanes,
                        uint64_t bytes_per_session) noexcept {
  constexpr uint64_t kBase = 64 * kMiB;
  constexpr uint64_t kConnection = 256 * kKiB;
  const uint64_t connections = sessions * ranks * (lanes + 1);
  return kBase + connections * kConnection + sessions * bytes_per_session;
}

}  // namespace sluice::config
