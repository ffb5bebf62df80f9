// Communicators with and without offload: each must log one verdict, which the test of the player compares.
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"
#include "tests/nccl/player/tuner.h"

namespace player {
namespace {

constexpr size_t kBytes = 64u << 20;
const std::vector<Operation> kTraffic = {{kFloat32, kSum, 300'000, 2, 32u << 10, 1}};

// The tuner of one communicator.
class TunedCommunicator {
 public:
  TunedCommunicator(const Plugin& plugin, const std::string& name, size_t ranks, size_t nodes)
      : tuner_(load_tuner(plugin.library(), kLastTunerAbi)) {
    require_success(tuner_->init(hash_comm_id(name), ranks, nodes, &context_), "tuner init");
  }
  ~TunedCommunicator() { (void)tuner_->end(context_); }
  TunedCommunicator(const TunedCommunicator&) = delete;
  TunedCommunicator& operator=(const TunedCommunicator&) = delete;

  Result query(bool collnet) {
    CostTable costs;
    for (auto& algorithm : costs) std::fill(std::begin(algorithm), std::end(algorithm), 1000.0f);
    if (!collnet) {
      for (const int algorithm : {kCollNetDirect, kCollNetChain})
        std::fill(std::begin(costs[algorithm]), std::end(costs[algorithm]), -1.0f);
    }
    int channels = 0;
    return tuner_->tune(context_, kAllReduce, kBytes, costs, &channels);
  }

 private:
  std::unique_ptr<Tuner> tuner_;
  void* context_ = nullptr;
};

}  // namespace

void run_verdict(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const auto nodes = static_cast<size_t>(rank.count());
  // 2.20, and 2.21 later: no tuner.
  OpenCommunicator untuned = open_communicator(rank, plugin, "untuned", {2, 1u << 20});
  untuned.traffic->find_fold_order();
  untuned.traffic->run(kTraffic);
  rank.barrier("untuned");
  untuned.close(plugin);

  OpenCommunicator parent = open_communicator(rank, plugin, "parent", {2, 1u << 20});
  TunedCommunicator tuned(plugin, "parent", nodes, nodes);
  for (int i = 0; i < 3; ++i) require_success(tuned.query(true), "tuner getCollInfo");
  parent.traffic->find_fold_order();
  parent.traffic->run(kTraffic);
  {
    TunedCommunicator child(plugin, "child", nodes, nodes);
    require_success(child.query(false), "tuner getCollInfo");
    TunedCommunicator other(plugin, "other", nodes + 1, nodes + 1);
    require_success(other.query(false), "tuner getCollInfo");
    TunedCommunicator one_node(plugin, "one node", 8, 1);
    TunedCommunicator unused(plugin, "unused", nodes, nodes);
  }
  rank.barrier("before close");
  parent.close(plugin);
}

// NCCL 2.28.3 to 2.29.7 unload the plugin with the last communicator, and load it again with the next one:
// each round needs a verdict and offloads.
void run_reload(Rank& rank) {
  const auto nodes = static_cast<size_t>(rank.count());
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "load " + std::to_string(round);
    Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
    OpenCommunicator open = open_communicator(rank, plugin, name, {2, 1u << 20});
    {
      TunedCommunicator tuned(plugin, name, nodes, nodes);
      require_success(tuned.query(true), "tuner getCollInfo");
      open.traffic->find_fold_order();
      open.traffic->run(kTraffic);
      rank.barrier(name + " before close");
    }
    open.close(plugin);
  }
}

// The last rank has no plugin, so NCCL uses its own network there. NCCL connects each rank with its neighbors
// only; here all ranks try the last one. The result must be an error at once, not a wait.
void run_mixed_nodes(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
  const Contexts contexts = plugin.init(hash_comm_id("mixed"));
  const int last = rank.count() - 1;
  Block handle(128, std::byte{0});
  void* listener = nullptr;
  if (rank.index() == last) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(1);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(handle.data(), &address, sizeof address);
  } else {
    require_success(plugin.net().listen(contexts.net, 0, handle.data(), &listener), "net listen");
  }
  std::vector<Block> all = rank.bootstrap().all_gather("handles", rank.index(), rank.count(), handle);
  if (rank.index() != last) {
    void* comm = nullptr;
    require(plugin.net().connect(contexts.net, 0, all.back().data(), &comm) != kSuccess && comm == nullptr,
            "connected to a node without the plugin");
    require_success(plugin.net().close_listen(listener), "net closeListen");
  }
  plugin.finalize(contexts);
}

// Releases that drop the errors of the network: after one, the next query of the tuner fails instead.
void run_dropped_error(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const auto nodes = static_cast<size_t>(rank.count());
  OpenCommunicator open = open_communicator(rank, plugin, "dropped", {2, 1u << 20});
  TunedCommunicator tuned(plugin, "dropped", nodes, nodes);
  require_success(tuned.query(true), "tuner getCollInfo");
  open.traffic->find_fold_order();
  const Operation operation{kFloat32, kSum, 1u << 20, 2, 64u << 10, 3};
  rank.barrier("fold order known");
  if (rank.index() == 0) {  // like a rank that aborts
    open.traffic->leave_open(operation, 2);
    rank.barrier("left open");
    return open.close(plugin);
  }
  rank.barrier("left open");
  try {
    open.traffic->run({operation});
    throw Failure("an allreduce finished although a rank did not participate");
  } catch (const CallFailed&) {
  }
  const Result next = tuned.query(true);
  const bool fails = rank.options().expect == "fail";
  require((next != kSuccess) == fails, "the tuner returned " + std::to_string(next) + " after the error");
  TunedCommunicator without_lost_rank(plugin, "made after the failure", nodes, nodes);
  require_success(without_lost_rank.query(false),
                  "tuner getCollInfo of a communicator made after the failure");
  open.close(plugin);
  require_success(tuned.query(true), "tuner getCollInfo after the failed communicator was closed");
}

}  // namespace player
