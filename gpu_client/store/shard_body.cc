#include "gpu_client/store/shard_body.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "store/snapshot/half_floats.h"

namespace sluice::store_client {
namespace {

// Little-endian, like the wire.
void convert(wire::DType from, const std::byte* in, wire::DType to, std::byte* out, uint64_t count) {
  if (from == to) {
    std::memcpy(out, in, count * size_of(from));
    return;
  }
  std::array<float, 1024> values;
  for (uint64_t done = 0; done < count;) {
    const auto some = std::span(values).first(std::min<uint64_t>(values.size(), count - done));
    store::load_elements(from, in + done * size_of(from), some);
    store::store_elements(to, some, out + done * size_of(to));
    done += some.size();
  }
}

}  // namespace

ShardBody::ShardBody(const store::ModelSpec& spec, const store::ModelLayout& layout, uint32_t shard) {
  for (const store::ShardPiece& piece : layout.pieces_of_shard(shard)) {
    runs_.push_back({.tensor = piece.tensor,
                     .dtype = spec.tensors[piece.tensor].dtype,
                     .first_in_tensor = piece.first_in_tensor,
                     .first_in_shard = piece.first_in_shard,
                     .count = piece.count});
  }
}

template <typename Copy>
uint64_t ShardBody::for_runs(uint64_t first, uint64_t count, const Copy& copy) const {
  // The first run that ends behind `first`.
  auto run =
      std::ranges::upper_bound(runs_, first, {}, [](const Run& r) { return r.first_in_shard + r.count; });
  uint64_t done = 0;
  for (; run != runs_.end() && done < count; ++run) {
    const uint64_t skipped = first + done - run->first_in_shard;
    const uint64_t n = std::min(run->count - skipped, count - done);
    copy(*run, run->first_in_tensor + skipped, done, n);
    done += n;
  }
  return done;
}

void ShardBody::gather(const void* const* tensors, wire::DType dtype, uint64_t offset,
                       std::span<std::byte> piece) const {
  const size_t size = size_of(dtype);
  const uint64_t used = for_runs(
      offset / size, piece.size() / size, [&](const Run& run, uint64_t first, uint64_t at, uint64_t count) {
        const auto* const in = static_cast<const std::byte*>(tensors[run.tensor]);
        convert(run.dtype, in + first * size_of(run.dtype), dtype, piece.data() + at * size, count);
      });
  const auto padding = piece.subspan(used * size);
  if (!padding.empty()) std::memset(padding.data(), 0, padding.size());
}

void ShardBody::scatter(void* const* tensors, wire::DType dtype, uint64_t offset,
                        std::span<const std::byte> piece) const {
  const size_t size = size_of(dtype);
  for_runs(offset / size, piece.size() / size,
           [&](const Run& run, uint64_t first, uint64_t at, uint64_t count) {
             auto* const out = static_cast<std::byte*>(tensors[run.tensor]);
             convert(dtype, piece.data() + at * size, run.dtype, out + first * size_of(run.dtype), count);
           });
}

}  // namespace sluice::store_client
