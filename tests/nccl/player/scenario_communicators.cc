#include <dlfcn.h>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/set_up.h"

namespace player {
namespace {

std::vector<Operation> some_operations(uint64_t seed) {
  return {{kFloat32, kSum, 300'000, 2, 32u << 10, seed * 8 + 1},
          {kBfloat16, kSum, 200'000, 2, 32u << 10, seed * 8 + 2},
          {kInt32, kMax, 70'000, 2, 32u << 10, seed * 8 + 3}};
}

// Each of `busy` from threads of its own, at the same time.
void run_at_once(std::vector<Open*> busy) {
  std::vector<std::future<void>> running;
  for (size_t i = 0; i < busy.size(); ++i) {
    running.push_back(std::async(std::launch::async, [open = busy[i], i] {
      open->traffic->learn_order();
      open->traffic->run(some_operations(i));
    }));
  }
  std::exception_ptr failed;
  for (std::future<void>& one : running) {
    try {
      one.get();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace

void play_communicators(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  std::vector<Open> opens;
  // One after the other, as an application creates them.
  for (int i = 0; i < rank.options().communicators; ++i) {
    opens.push_back(open_communicator(rank, plugin, "communicator " + std::to_string(i), {2, 1u << 20}));
  }
  std::vector<Open*> busy;
  const int count = std::min(rank.options().busy, rank.options().communicators);
  for (int i = 0; i < count; ++i)
    busy.push_back(&opens[static_cast<size_t>(i * rank.options().communicators / count)]);
  run_at_once(busy);
  rank.barrier("before close");
  for (Open& open : opens) open.close(plugin);
}

void play_heads(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  const int heads = rank.options().heads;
  // One communicator, so one commId; each head has handles of its own.
  const Contexts contexts = plugin.begin(comm_id_of("heads"));
  int devices = 0;
  require_success(plugin.collnet().devices(&devices), "CollNet devices");
  const auto device_of = [&](int head) {
    return rank.options().device < 0 ? head % devices : rank.options().device;
  };
  std::vector<Open> opens;
  if (rank.options().heads_apart) {
    require(rank.count() % heads == 0, "ranks are no multiple of heads");
    const int node = rank.index() / heads, nodes = rank.count() / heads;
    opens.push_back(open_head(
        rank, plugin, contexts,
        {"head " + std::to_string(rank.index() % heads), nodes, node, node, device_of(rank.index() % heads)},
        {}));
  } else {
    for (int head = 0; head < heads; ++head) {
      Group group = everybody(rank, "head " + std::to_string(head));
      group.device = device_of(head);
      opens.push_back(open_head(rank, plugin, contexts, group, {}));
    }
  }
  std::vector<Open*> busy;
  for (Open& open : opens) busy.push_back(&open);
  run_at_once(busy);
  rank.barrier("before close");
  for (Open& open : opens) open.communicator->close();
  plugin.end(contexts);
}

void play_repeat(Rank& rank) {
  for (int round = 0; round < rank.options().rounds; ++round) {
    // dlopen and dlclose too, as NCCL does with its last communicator.
    Plugin plugin(rank.options(), Plugin::Want::kCollNet);
    const std::string name = "round " + std::to_string(round);
    Open open = open_communicator(rank, plugin, name, {2, 1u << 20});
    open.traffic->learn_order();
    open.traffic->run(some_operations(static_cast<uint64_t>(round)));
    rank.barrier(name + " before close");
    open.close(plugin);
  }
  // Threads of the plugin may still run: the file must have stayed.
  void* const still = dlopen(rank.options().plugin.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  require(still != nullptr, "dlclose took the plugin away");
}

}  // namespace player
