// Memory of the buckets of a trace.
#pragma once

#include <span>
#include <vector>

#include "bench/traces/trace.h"
#include "core/arena.h"

namespace sluice::bench {

// Failure(kExitUsage) when `limit` has no room for the largest bucket.
void check_buffer_limit(const std::vector<Bucket>& buckets, uint64_t limit);

class BucketBuffers {
 public:
  // Each bucket has memory of its own and is reduced in place, as frameworks do it. Where that is more than
  // `limit`, buckets share: all are sent from one half of `limit` and received into the other, for what one
  // bucket receives must not change what another one sends. Checks the limit.
  BucketBuffers(const std::vector<Bucket>& buckets, uint64_t limit);

  struct Place {
    std::byte* send;
    std::byte* recv;  // `send`, unless shared
  };
  [[nodiscard]] Place place(size_t bucket) const;
  [[nodiscard]] bool shared() const noexcept { return receive_.size() != 0; }
  // All that places lie in.
  [[nodiscard]] std::vector<std::span<std::byte>> memory() const;
  [[nodiscard]] uint64_t bytes() const noexcept { return send_.size() + receive_.size(); }
  // The first bucket after `begin` that shares memory with one from `begin` on; the number of buckets if none
  // does.
  [[nodiscard]] size_t end_of_distinct(size_t begin) const;

 private:
  std::vector<uint64_t> offsets_;
  Arena send_;
  Arena receive_;  // empty: in place
};

}  // namespace sluice::bench
