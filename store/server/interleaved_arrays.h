// Class InterleavedArrays maps the bytes of COPY_VERSION's body to the arrays of a shard: a frame's bytes of
// each array in turn, the last ones shorter. So a copy gets all values of an element soon after they are
// computed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "wire/store_messages.h"

namespace sluice::store {

class InterleavedArrays {
 public:
  InterleavedArrays(size_t arrays, uint64_t array_bytes) : arrays_(arrays), array_bytes_(array_bytes) {}

  [[nodiscard]] uint64_t bytes() const noexcept { return arrays_ * array_bytes_; }
  // Calls `each` with array, offset in it, offset in the piece, and length, for the parts of the body's
  // `size` bytes from `offset`.
  template <typename Each>
  void for_parts(uint64_t offset, uint64_t size, const Each& each) const {
    for (uint64_t done = 0; done < size;) {
      const uint64_t at = offset + done;
      const uint64_t round = at / (arrays_ * wire::kModelDataBytes);
      const uint64_t first = round * wire::kModelDataBytes;  // in each array
      const uint64_t width = std::min<uint64_t>(wire::kModelDataBytes, array_bytes_ - first);
      const uint64_t in_round = at - first * arrays_;
      const uint64_t skipped = in_round % width;
      const uint64_t length = std::min(width - skipped, size - done);
      each(static_cast<size_t>(in_round / width), first + skipped, done, length);
      done += length;
    }
  }

 private:
  const size_t arrays_;
  const uint64_t array_bytes_;
};

}  // namespace sluice::store
