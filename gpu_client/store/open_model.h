// Struct OpenModel is a model as its client sees it: what never changes, and the owners of its shards.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpu_client/store/shard_body.h"
#include "store/model/body_values.h"
#include "store/model/model_layout.h"
#include "store/model/model_state.h"

namespace sluice::store_client {

struct ModelShape {
  store::ModelSpec spec;
  store::ModelLayout layout;
  std::vector<ShardBody> bodies;  // by shard

  ModelShape(store::ModelSpec model, uint32_t shards) : spec(std::move(model)), layout(spec, shards) {
    for (uint32_t shard = 0; shard < shards; ++shard) bodies.emplace_back(spec, layout, shard);
  }
  [[nodiscard]] uint64_t body_bytes(wire::DType dtype) const noexcept {
    return store::body_bytes(dtype, layout.shard_elements());
  }
};

struct OpenModel {
  std::shared_ptr<const ModelShape> shape;
  uint64_t id = 0;
  std::vector<store::ShardOwner> owners;  // by shard; that of shard 0 leads
  bool started = false;

  [[nodiscard]] uint32_t shards() const noexcept { return static_cast<uint32_t>(owners.size()); }
};

[[nodiscard]] std::shared_ptr<const OpenModel> make_model(store::ModelState state);

}  // namespace sluice::store_client
