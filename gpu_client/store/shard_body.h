// Class ShardBody copies between the caller's tensors and pieces of the body of a shard, as the socket sends
// or receives them. Converts between the types of the tensors and that of the body. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "store/model/model_layout.h"
#include "store/model/model_spec.h"

namespace sluice::store_client {

class ShardBody {
 public:
  ShardBody(const store::ModelSpec& spec, const store::ModelLayout& layout, uint32_t shard);

  // `tensors` has a pointer for each tensor of the model. `dtype` is a type of body_values.h; `offset` and
  // the size of the piece are multiples of its size. The padding becomes 0, and is ignored. kBadField: a
  // block that the peer has sent is malformed.
  void gather(const void* const* tensors, wire::DType dtype, uint64_t offset,
              std::span<std::byte> piece) const;
  [[nodiscard]] Status scatter(void* const* tensors, wire::DType dtype, uint64_t offset,
                               std::span<const std::byte> piece) const;

 private:
  struct Run {
    uint32_t tensor = 0;
    wire::DType dtype = wire::DType::kF32;
    uint64_t first_in_tensor = 0;
    uint64_t first_in_shard = 0;
    uint64_t count = 0;
  };
  // Calls `copy` with a run, the first of its elements, the position in the piece, and the number of
  // elements. Returns the elements of the piece that belong to tensors.
  template <typename Copy>
  uint64_t for_runs(uint64_t first, uint64_t count, const Copy& copy) const;
  // Of elements from `first`: types that are no blocks.
  void gather_elements(const void* const* tensors, wire::DType dtype, uint64_t first, uint64_t count,
                       std::byte* out) const;
  void scatter_elements(void* const* tensors, wire::DType dtype, uint64_t first, uint64_t count,
                        const std::byte* in) const;

  std::vector<Run> runs_;
};

}  // namespace sluice::store_client
