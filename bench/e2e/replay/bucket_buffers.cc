#include "bench/e2e/replay/bucket_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/e2e/process/exit_codes.h"
#include "config/sizes.h"
#include "core/units.h"

namespace sluice::bench {
namespace {

// Bytes that the buckets need; each bucket starts at a cache line.
struct MemoryNeeds {
  uint64_t total = 0;
  uint64_t largest = 0;
};

MemoryNeeds needs_of(const std::vector<Bucket>& buckets) {
  MemoryNeeds needs;
  for (const Bucket& bucket : buckets) {
    needs.total += round_up(bucket.bytes, kCacheLine);
    needs.largest = std::max(needs.largest, round_up(bucket.bytes, kCacheLine));
  }
  return needs;
}

}  // namespace

void check_buffer_limit(const std::vector<Bucket>& buckets, uint64_t limit) {
  const MemoryNeeds needs = needs_of(buckets);
  if (needs.total <= limit || needs.largest <= limit / 2) return;
  throw Failure(kExitUsage, fmt::format("--buffer-limit {} is too small: the largest bucket needs {} B, "
                                        "one half to send and one half to receive",
                                        config::size_text(limit), 2 * needs.largest));
}

BucketBuffers::BucketBuffers(const std::vector<Bucket>& buckets, uint64_t limit) {
  check_buffer_limit(buckets, limit);
  const uint64_t total = needs_of(buckets).total;
  const bool share = total > limit;
  const uint64_t room = share ? limit / 2 : total;
  uint64_t next = 0;
  for (const Bucket& bucket : buckets) {
    if (next + bucket.bytes > room) next = 0;
    offsets_.push_back(next);
    next += round_up(bucket.bytes, kCacheLine);
  }
  send_ = value_or_fail(Arena::map(room), kExitFailure);
  if (share) receive_ = value_or_fail(Arena::map(room), kExitFailure);
}

std::vector<std::span<std::byte>> BucketBuffers::memory() const {
  std::vector<std::span<std::byte>> parts;
  for (const Arena* arena : {&send_, &receive_}) {
    if (arena->size() > 0) parts.emplace_back(arena->data(), arena->size());
  }
  return parts;
}

BucketBuffers::BufferPair BucketBuffers::buffers_of(size_t bucket) const {
  std::byte* const send = send_.data() + offsets_[bucket];
  return {.send = send, .recv = shared() ? receive_.data() + offsets_[bucket] : send};
}

size_t BucketBuffers::end_of_disjoint(size_t begin) const {
  size_t end = begin + 1;
  // The constructor assigns ascending offsets; a lower offset restarts at the beginning and shares memory.
  while (end < offsets_.size() && offsets_[end] > offsets_[end - 1]) ++end;
  return end;
}

}  // namespace sluice::bench
