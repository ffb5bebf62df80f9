#include "gpu_client/store/open_model.h"

namespace sluice::store_client {

std::shared_ptr<const OpenModel> make_model(store::ModelState state) {
  const auto shards = static_cast<uint32_t>(state.shards.size());
  OpenModel model{.shape = std::make_shared<const ModelShape>(std::move(state.spec), shards),
                  .id = state.model,
                  .owners = std::move(state.shards),
                  .started = state.started};
  return std::make_shared<const OpenModel>(std::move(model));
}

}  // namespace sluice::store_client
