#include "bench/e2e/bucket_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/e2e/exit_codes.h"
#include "config/sizes.h"
#include "core/units.h"

namespace sluice::bench {
namespace {

// Bytes; buckets begin on cache lines.
struct Needs {
  uint64_t all = 0;
  uint64_t largest = 0;
};

Needs needs_of(const std::vector<Bucket>& buckets) {
  Needs needs;
  for (const Bucket& bucket : buckets) {
    needs.all += round_up(bucket.bytes, kCacheLine);
    needs.largest = std::max(needs.largest, round_up(bucket.bytes, kCacheLine));
  }
  return needs;
}

}  // namespace

void check_buffer_limit(const std::vector<Bucket>& buckets, uint64_t limit) {
  const Needs needs = needs_of(buckets);
  if (needs.all <= limit || needs.largest <= limit / 2) return;
  throw Failure(kExitUsage, fmt::format("--buffer-limit {} is too small: the largest bucket needs {} bytes, "
                                        "half to send from and half to receive into",
                                        config::size_text(limit), 2 * needs.largest));
}

BucketBuffers::BucketBuffers(const std::vector<Bucket>& buckets, uint64_t limit) {
  check_buffer_limit(buckets, limit);
  const uint64_t all = needs_of(buckets).all;
  const bool share = all > limit;
  const uint64_t room = share ? limit / 2 : all;
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

BucketBuffers::Place BucketBuffers::place(size_t bucket) const {
  std::byte* const send = send_.data() + offsets_[bucket];
  return {.send = send, .recv = shared() ? receive_.data() + offsets_[bucket] : send};
}

size_t BucketBuffers::end_of_distinct(size_t begin) const {
  size_t end = begin + 1;
  // Memory is given out upwards; going back to the begin is where sharing starts.
  while (end < offsets_.size() && offsets_[end] > offsets_[end - 1]) ++end;
  return end;
}

}  // namespace sluice::bench
