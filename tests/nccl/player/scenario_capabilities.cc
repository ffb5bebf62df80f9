#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/plugin.h"
#include "tests/nccl/player/scenarios.h"

namespace player {

// Prints what NCCL queries before it decides to use the plugin; the test checks it. Without net devices,
// CollNet is not called.
void run_capabilities(Rank& rank) {
  const Library library(rank.options().plugin);
  const std::unique_ptr<Net> net = load_net(library, rank.options().abi);
  void* context = nullptr;
  int net_devices = -1, collnet_devices = -1;
  const std::string name = net->name();
  require_success(net->init(1, &context), "net init");
  require_success(net->devices(&net_devices), "net devices");
  if (net_devices > 0 && rank.options().abi >= kFirstCollNetAbi) {
    const std::unique_ptr<CollNet> collnet = load_collnet(library, rank.options().abi);
    void* collnet_context = nullptr;
    require_success(collnet->init(1, &collnet_context), "CollNet init");
    require_success(collnet->devices(&collnet_devices), "CollNet devices");
    require_success(collnet->finalize(collnet_context), "CollNet finalize");
  }
  rank.print("name " + name + " net " + std::to_string(net_devices) + " collnet " +
             std::to_string(collnet_devices));
  require_success(net->finalize(context), "net finalize");
}

}  // namespace player
