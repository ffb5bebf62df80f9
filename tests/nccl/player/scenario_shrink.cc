// Communicators that ncclCommShrink and ncclCommGrow made from another one, the parent.
//
// NCCL makes the child while the parent exists; the application then aborts or destroys the parent. After
// ncclCommShrink with NCCL_SHRINK_ABORT the parent's proxy tests no request any more, so its requests are
// open when it is closed. Both children have other nodes than their parent and so a CollNet of their own.
#include <signal.h>
#include <unistd.h>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

constexpr Geometry kGeometry{2, 1u << 20};

// The members of a communicator: all ranks of the job but one.
class Members {
 public:
  Members(Rank& rank, int excluded) : rank_(rank) {
    for (int member = 0; member < rank.count(); ++member) {
      if (member != excluded) ranks_.push_back(member);
    }
  }

  [[nodiscard]] Group group(const std::string& name) const { return group_of(rank_, name, ranks_); }
  // Returns the block of the first member.
  Block gather(const std::string& name, const Block& block = {}) const {
    const Group own = group(name);
    return rank_.bootstrap().all_gather(name, own.place, own.ranks, block)[0];
  }
  OpenCommunicator open(Plugin& plugin, const std::string& name) const {
    OpenCommunicator open = open_head(rank_, plugin, plugin.init(hash_comm_id(name)), group(name), kGeometry);
    open.traffic->find_fold_order();
    return open;
  }

 private:
  Rank& rank_;
  std::vector<int> ranks_;
};

// Traffic until the test has seen what it waits for and closes the player's standard input.
void keep_running(Rank& rank, const Members& members, OpenCommunicator& open) {
  uint64_t seed = 100;
  for (bool stop = false; !stop; ++seed) {
    open.traffic->run(mixed_operations(seed));
    const Block own(1, stdin_ended() ? std::byte{1} : std::byte{0});
    stop = members.gather(open.communicator->group().name + " goes on", own)[0] != std::byte{0};
  }
  rank.print("all right");
}

// One rank dies. `open_requests`: the others have requests open then and make the child before they close the
// parent; otherwise the parent is idle and is closed first.
void shrink(Rank& rank, bool open_requests) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const Members all(rank, -1), survivors(rank, rank.options().killed_rank);
  OpenCommunicator parent = all.open(plugin, "parent");
  parent.traffic->run(mixed_operations(1));
  rank.barrier("parent used");
  if (rank.index() == rank.options().killed_rank) kill(getpid(), SIGKILL);

  const auto close_parent = [&] {
    const auto begin = Clock::now();
    parent.close(plugin);
    rank.print("parent closed after " + std::to_string(milliseconds_since(begin)) + " ms");
  };
  if (open_requests) {
    parent.traffic->leave_open({kFloat32, kSum, 1u << 20, 2, 64u << 10, 2}, kSteps);
  } else {
    close_parent();
  }
  OpenCommunicator child = survivors.open(plugin, "child");
  child.traffic->run(mixed_operations(3));
  if (open_requests) close_parent();
  keep_running(rank, survivors, child);
  child.close(plugin);
}

}  // namespace

void run_shrink(Rank& rank) {
  shrink(rank, true);
}

void run_shrink_idle(Rank& rank) {
  shrink(rank, false);
}

void run_grow(Rank& rank) {
  const int joining = rank.count() - 1;
  const Members all(rank, -1), existing(rank, joining);
  // The process that joins has no communicator before.
  if (rank.index() == joining) rank.barrier("grow");
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator parent;
  if (rank.index() != joining) {
    parent = existing.open(plugin, "parent");
    parent.traffic->run(mixed_operations(1));
    rank.barrier("grow");
  }
  OpenCommunicator child = all.open(plugin, "child");
  child.traffic->run(mixed_operations(2));
  if (rank.index() != joining) {
    parent.traffic->run(mixed_operations(3));
    (void)existing.gather("parent used");
    parent.close(plugin);
    rank.print("parent closed");
  }
  keep_running(rank, all, child);
  child.close(plugin);
}

}  // namespace player
