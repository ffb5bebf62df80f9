// Class ModelLayout says which elements of which tensor are in which shard of a model.
//
// The tensors lie one after another in the order of the specification, as f32 whatever their own type is. The
// shards have equal sizes, so that their files and transfers have, too. Elements after the last tensor are
// padding and 0 in all versions. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "store/model/model_spec.h"

namespace sluice::store {

// The size of a shard is a multiple of this, so that arrays begin at cache lines and vectors need no tail.
inline constexpr uint64_t kShardMultiple = 64;

// A run of elements of one tensor in one shard. An element of the tensor takes size_of(its dtype) bytes, one
// of the shard 4.
struct ShardPiece {
  uint32_t tensor = 0;           // index in the specification
  uint32_t shard = 0;            //
  uint64_t first_in_tensor = 0;  // elements
  uint64_t first_in_shard = 0;
  uint64_t count = 0;  // at least 1
  friend bool operator==(const ShardPiece&, const ShardPiece&) = default;
};

class ModelLayout {
 public:
  // `spec` is valid; `shards` is at least 1.
  ModelLayout(const ModelSpec& spec, uint32_t shards);

  [[nodiscard]] uint32_t shards() const noexcept { return shards_; }
  [[nodiscard]] uint64_t elements() const noexcept { return offsets_.back(); }
  [[nodiscard]] uint64_t shard_elements() const noexcept { return shard_elements_; }  // with padding
  // The elements of the shard that belong to a tensor; the others are padding.
  [[nodiscard]] uint64_t used_elements(uint32_t shard) const noexcept;
  // Position of the tensor's first element among the elements of all tensors.
  [[nodiscard]] uint64_t offset(uint32_t tensor) const noexcept { return offsets_[tensor]; }

  // In order of position. Together they cover each element of each tensor once.
  [[nodiscard]] std::vector<ShardPiece> pieces_of_shard(uint32_t shard) const;
  [[nodiscard]] std::vector<ShardPiece> pieces_of_tensor(uint32_t tensor) const;

 private:
  // The pieces of the elements from `first` up to `end`.
  [[nodiscard]] std::vector<ShardPiece> pieces(uint64_t first, uint64_t end) const;

  std::vector<uint64_t> offsets_;  // of all tensors, then the number of elements
  uint32_t shards_;
  uint64_t shard_elements_;
};

}  // namespace sluice::store
