// Class BucketBuffers allocates the send and receive memory of the buckets of a trace.
#pragma once

#include <span>
#include <vector>

#include "bench/traces/trace.h"
#include "core/arena.h"

namespace sluice::bench {

// Throws Failure(kExitUsage) when the largest bucket does not fit in `limit`.
void check_buffer_limit(const std::vector<Bucket>& buckets, uint64_t limit);

class BucketBuffers {
 public:
  // Gives each bucket separate memory for a reduction in place, like frameworks do. If that exceeds `limit`,
  // buckets share memory: one half of `limit` is the send memory, the other half the receive memory. The
  // halves are separate because the result of one bucket must not change the data of another. Checks the
  // limit.
  BucketBuffers(const std::vector<Bucket>& buckets, uint64_t limit);

  struct BufferPair {
    std::byte* send;
    std::byte* recv;  // equals `send` unless memory is shared
  };
  [[nodiscard]] BufferPair buffers_of(size_t bucket) const;
  [[nodiscard]] bool shared() const noexcept { return receive_.size() != 0; }
  // Returns the memory of all buckets.
  [[nodiscard]] std::vector<std::span<std::byte>> memory() const;
  [[nodiscard]] uint64_t bytes() const noexcept { return send_.size() + receive_.size(); }
  // Returns the first bucket after `begin` that shares memory with a bucket in [begin, result), or the number
  // of buckets.
  [[nodiscard]] size_t end_of_disjoint(size_t begin) const;

 private:
  std::vector<uint64_t> offsets_;
  Arena send_;
  Arena receive_;  // empty: in place
};

}  // namespace sluice::bench
