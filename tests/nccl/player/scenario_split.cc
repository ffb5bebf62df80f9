// Communicators that ncclCommSplit made from another one, the parent.
//
// NCCL initializes the plugin for a child as for any communicator, unless the child shares its parent's
// resources (config.splitShare): then it passes the parent's contexts. A child has a CollNet of its own if it
// has other nodes than its parent, if its parent has no CollNet, or before NCCL 2.22. Else it either uses
// only the network, or, with shared resources, the parent's CollNet, which the plugin cannot distinguish from
// traffic of the parent.
#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/net_link.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

constexpr Geometry kGeometry{2, 1u << 20};

// A communicator of all ranks without CollNet.
class NetCommunicator {
 public:
  NetCommunicator(Rank& rank, Plugin& plugin, const std::string& name)
      : rank_(rank),
        plugin_(plugin),
        contexts_(plugin.init(hash_comm_id(name))),
        link_(connect_link(rank, plugin, contexts_, 1, name)) {}

  void run(uint64_t seed) {
    run_traffic(rank_, plugin_, link_, 1, {std::vector<size_t>(20, 100'001), 8, seed, false});
  }
  void close() {
    close_link(plugin_, link_);
    plugin_.finalize(contexts_);
  }

 private:
  Rank& rank_;
  Plugin& plugin_;
  const Contexts contexts_;
  NetLink link_;
};

// The ranks with this rank's color, which is `first` + a multiple of `stride`, at most `count` of them.
std::vector<int> members_from(const Rank& rank, int first, int stride, int count) {
  std::vector<int> members;
  for (int member = first; member < rank.count() && std::ssize(members) < count; member += stride)
    members.push_back(member);
  return members;
}

void first_traffic(OpenCommunicator& open, uint64_t seed) {
  open.traffic->find_fold_order();
  open.traffic->run(mixed_operations(seed));
}

// A parent and a child that both use only the network, as with every release before 2.20.
void split_without_collnet(Rank& rank, Plugin& plugin) {
  NetCommunicator parent(rank, plugin, "parent"), child(rank, plugin, "child");
  run_concurrently({[&] { parent.run(1); }, [&] { child.run(2); }});
  parent.close();
  child.run(3);
  child.close();
}

// Two disjoint children with CollNet, and one without, of a parent with CollNet.
void split_collnet_parent(Rank& rank, Plugin& plugin) {
  OpenCommunicator parent = open_communicator(rank, plugin, "parent", kGeometry);
  first_traffic(parent, 1);
  NetCommunicator without_collnet(rank, plugin, "child without CollNet");
  const int color = rank.index() % 2;
  const std::string name = "child of color " + std::to_string(color);
  OpenCommunicator child;
  run_concurrently({[&] { parent.traffic->run(mixed_operations(2)); }, [&] { without_collnet.run(3); },
                    [&] {
                      child = open_head(rank, plugin, plugin.init(hash_comm_id(name)),
                                        group_of(rank, name, members_from(rank, color, 2, rank.count())),
                                        kGeometry);
                      first_traffic(child, 10 + static_cast<uint64_t>(color));
                    }});
  rank.barrier("parent and children used");
  parent.close(plugin);
  // The application may destroy the parent first.
  run_concurrently({[&] { child.traffic->run(mixed_operations(20 + static_cast<uint64_t>(color))); },
                    [&] { without_collnet.run(4); }});
  without_collnet.close();
  rank.barrier("children used");
  child.close(plugin);
}

// Children with CollNet that share the resources of a parent without: with collnetEnable in their
// configuration only. Each rank has two children, as the replicas and shards of a two-dimensional mesh.
void split_shared(Rank& rank, Plugin& plugin) {
  const Contexts contexts = plugin.init(hash_comm_id("parent without CollNet"));
  const int column = rank.index() % 2, row = rank.index() / 2;
  const auto open = [&](const std::string& name, const std::vector<int>& members) {
    return open_head(rank, plugin, contexts, group_of(rank, name, members), kGeometry);
  };
  OpenCommunicator replicas =
      open("column " + std::to_string(column), members_from(rank, column, 2, rank.count()));
  OpenCommunicator shards = open("row " + std::to_string(row), members_from(rank, 2 * row, 1, 2));
  run_concurrently({[&] { first_traffic(replicas, 30 + static_cast<uint64_t>(column)); },
                    [&] { first_traffic(shards, 40 + static_cast<uint64_t>(row)); }});
  rank.barrier("replicas used");
  replicas.communicator->close();
  shards.traffic->run(mixed_operations(50 + static_cast<uint64_t>(row)));
  rank.barrier("shards used");
  shards.communicator->close();
  plugin.finalize(contexts);
}

}  // namespace

void run_split(Rank& rank) {
  require(rank.count() >= 4 && rank.count() % 2 == 0,
          "the scenario needs an even number of ranks, at least 4");
  if (rank.options().abi < kFirstCollNetAbi) {
    Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
    return split_without_collnet(rank, plugin);
  }
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  split_collnet_parent(rank, plugin);
  split_shared(rank, plugin);
}

}  // namespace player
