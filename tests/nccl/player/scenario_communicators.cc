#include <dlfcn.h>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

std::vector<Operation> some_operations(uint64_t seed) {
  return {{kFloat32, kSum, 300'000, 2, 32u << 10, seed * 8 + 1},
          {kBfloat16, kSum, 200'000, 2, 32u << 10, seed * 8 + 2},
          {kInt32, kMax, 70'000, 2, 32u << 10, seed * 8 + 3}};
}

// Runs traffic on all communicators of `busy` concurrently.
void run_concurrently(const std::vector<OpenCommunicator*>& busy) {
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < busy.size(); ++i) {
    tasks.emplace_back([open = busy[i], i] {
      open->traffic->find_fold_order();
      open->traffic->run(some_operations(i));
    });
  }
  player::run_concurrently(tasks);
}

}  // namespace

void run_communicators(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  std::vector<OpenCommunicator> opens;
  // Created one after the other, as in an application.
  for (int i = 0; i < rank.options().communicators; ++i) {
    opens.push_back(open_communicator(rank, plugin, "communicator " + std::to_string(i), {2, 1u << 20}));
  }
  std::vector<OpenCommunicator*> busy;
  const int count = std::min(rank.options().busy, rank.options().communicators);
  for (int i = 0; i < count; ++i)
    busy.push_back(&opens[static_cast<size_t>(i * rank.options().communicators / count)]);
  run_concurrently(busy);
  rank.barrier("before close");
  for (OpenCommunicator& open : opens) open.close(plugin);
}

void run_heads(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const int heads = rank.options().heads;
  // One communicator has one commId; each head has separate handles.
  const Contexts contexts = plugin.init(hash_comm_id("heads"));
  int devices = 0;
  require_success(plugin.collnet().devices(&devices), "CollNet devices");
  const auto device_of = [&](int head) {
    return rank.options().device < 0 ? head % devices : rank.options().device;
  };
  std::vector<OpenCommunicator> opens;
  if (rank.options().head_processes) {
    require(rank.count() % heads == 0, "the number of ranks is not a multiple of the number of heads");
    const int node = rank.index() / heads, nodes = rank.count() / heads;
    opens.push_back(open_head(
        rank, plugin, contexts,
        {"head " + std::to_string(rank.index() % heads), nodes, node, node, device_of(rank.index() % heads)},
        {}));
  } else {
    for (int head = 0; head < heads; ++head) {
      Group group = all_ranks(rank, "head " + std::to_string(head));
      group.device = device_of(head);
      opens.push_back(open_head(rank, plugin, contexts, group, {}));
    }
  }
  std::vector<OpenCommunicator*> busy;
  for (OpenCommunicator& open : opens) busy.push_back(&open);
  run_concurrently(busy);
  rank.barrier("before close");
  for (OpenCommunicator& open : opens) open.communicator->close();
  plugin.finalize(contexts);
}

void run_repeat(Rank& rank) {
  for (int round = 0; round < rank.options().rounds; ++round) {
    // NCCL calls dlclose after its last communicator, so each round includes dlopen and dlclose.
    Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
    const std::string name = "round " + std::to_string(round);
    OpenCommunicator open = open_communicator(rank, plugin, name, {2, 1u << 20});
    open.traffic->find_fold_order();
    open.traffic->run(some_operations(static_cast<uint64_t>(round)));
    rank.barrier(name + " before close");
    open.close(plugin);
  }
  // Threads of the plugin may still run, so the file must stay loaded.
  void* const loaded = dlopen(rank.options().plugin.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  require(loaded != nullptr, "dlclose unloaded the plugin");
}

}  // namespace player
