#include "store/model/model_layout.h"

#include <algorithm>

#include "core/assert.h"
#include "core/units.h"

namespace sluice::store {

ModelLayout::ModelLayout(const ModelSpec& spec, uint32_t shards) : shards_(shards) {
  SLUICE_ASSERT(shards > 0);
  uint64_t position = 0;
  offsets_.reserve(spec.tensors.size() + 1);
  for (const TensorSpec& tensor : spec.tensors) {
    offsets_.push_back(position);
    position += tensor.elements();
  }
  offsets_.push_back(position);
  shard_elements_ = round_up(div_ceil(position, shards), kShardMultiple);
}

uint64_t ModelLayout::used_elements(uint32_t shard) const noexcept {
  const uint64_t first = shard * shard_elements_;
  return first >= elements() ? 0 : std::min(shard_elements_, elements() - first);
}

std::vector<ShardPiece> ModelLayout::pieces(uint64_t first, uint64_t end) const {
  std::vector<ShardPiece> out;
  // The last tensor that begins at or before `first`.
  auto tensor = static_cast<uint32_t>(std::ranges::upper_bound(offsets_, first) - offsets_.begin() - 1);
  while (first < end) {
    const auto shard = static_cast<uint32_t>(first / shard_elements_);
    const uint64_t stop = std::min({end, offsets_[tensor + 1], (shard + 1) * shard_elements_});
    out.push_back({.tensor = tensor,
                   .shard = shard,
                   .first_in_tensor = first - offsets_[tensor],
                   .first_in_shard = first - shard * shard_elements_,
                   .count = stop - first});
    first = stop;
    if (first == offsets_[tensor + 1]) ++tensor;
  }
  return out;
}

std::vector<ShardPiece> ModelLayout::pieces_of_shard(uint32_t shard) const {
  const uint64_t first = shard * shard_elements_;
  return pieces(first, first + used_elements(shard));
}

std::vector<ShardPiece> ModelLayout::pieces_of_tensor(uint32_t tensor) const {
  return pieces(offsets_[tensor], offsets_[tensor + 1]);
}

}  // namespace sluice::store
