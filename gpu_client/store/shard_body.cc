#include "gpu_client/store/shard_body.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "store/model/body_values.h"
#include "store/snapshot/half_floats.h"

namespace sluice::store_client {
namespace {

// Blocks are converted through a few values on the stack.
constexpr size_t kBlockValuesAtOnce = 4 * wire::kBlockValues;
constexpr size_t kBlockBytesAtOnce = 4 * wire::kBlockBytes;

// Of types that are no blocks. Little-endian, like the wire.
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

void ShardBody::gather_elements(const void* const* tensors, wire::DType dtype, uint64_t first, uint64_t count,
                                std::byte* out) const {
  const size_t size = size_of(dtype);
  const uint64_t used = for_runs(first, count, [&](const Run& run, uint64_t from, uint64_t at, uint64_t n) {
    const auto* const in = static_cast<const std::byte*>(tensors[run.tensor]);
    convert(run.dtype, in + from * size_of(run.dtype), dtype, out + at * size, n);
  });
  if (used < count) std::memset(out + used * size, 0, (count - used) * size);
}

void ShardBody::scatter_elements(void* const* tensors, wire::DType dtype, uint64_t first, uint64_t count,
                                 const std::byte* in) const {
  const size_t size = size_of(dtype);
  for_runs(first, count, [&](const Run& run, uint64_t to, uint64_t at, uint64_t n) {
    auto* const out = static_cast<std::byte*>(tensors[run.tensor]);
    convert(dtype, in + at * size, run.dtype, out + to * size_of(run.dtype), n);
  });
}

void ShardBody::gather(const void* const* tensors, wire::DType dtype, uint64_t offset,
                       std::span<std::byte> piece) const {
  uint64_t first = store::value_at(dtype, offset);
  if (!is_block(dtype))
    return gather_elements(tensors, dtype, first, piece.size() / size_of(dtype), piece.data());
  for (auto rest = piece; !rest.empty(); first += kBlockValuesAtOnce) {
    const auto blocks = rest.first(std::min(rest.size(), kBlockBytesAtOnce));
    std::array<float, kBlockValuesAtOnce> buffer;
    const auto values = std::span(buffer).first(store::value_at(dtype, blocks.size()));
    gather_elements(tensors, wire::DType::kF32, first, values.size(), std::as_writable_bytes(values).data());
    store::encode_body(dtype, values, blocks.data());
    rest = rest.subspan(blocks.size());
  }
}

Status ShardBody::scatter(void* const* tensors, wire::DType dtype, uint64_t offset,
                          std::span<const std::byte> piece) const {
  uint64_t first = store::value_at(dtype, offset);
  if (!is_block(dtype)) {
    scatter_elements(tensors, dtype, first, piece.size() / size_of(dtype), piece.data());
    return {};
  }
  for (auto rest = piece; !rest.empty(); first += kBlockValuesAtOnce) {
    const auto blocks = rest.first(std::min(rest.size(), kBlockBytesAtOnce));
    std::array<float, kBlockValuesAtOnce> buffer;
    const auto values = std::span(buffer).first(store::value_at(dtype, blocks.size()));
    if (const Status s = store::decode_body(dtype, blocks.data(), values); !s.ok()) return s;
    scatter_elements(tensors, wire::DType::kF32, first, values.size(), std::as_bytes(values).data());
    rest = rest.subspan(blocks.size());
  }
  return {};
}

}  // namespace sluice::store_client
