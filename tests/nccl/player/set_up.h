// From nothing to a communicator that carries traffic, as every scenario needs it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/player/communicator.h"
#include "tests/nccl/player/plugin.h"
#include "tests/nccl/player/traffic.h"

namespace player {

// The same on all ranks.
uint64_t comm_id_of(const std::string& name);

using Support = std::array<std::array<bool, kReduceOps>, kDataTypes>;
// Asks as NCCL does at set-up, and beyond: types and operators of a newer NCCL must get an answer too.
Support ask_support(CollNet& collnet);

// A communicator of all ranks, or of one head's.
struct Open {
  Contexts contexts;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Traffic> traffic;

  void close(Plugin& plugin);
};
// Throws Failure where connect fails. `contexts`: of the communicator that this head belongs to.
Open open_head(Rank& rank, Plugin& plugin, const Contexts& contexts, Group group, Geometry geometry);
Open open_communicator(Rank& rank, Plugin& plugin, const std::string& name, Geometry geometry = {});
Group everybody(const Rank& rank, const std::string& name);

// One operation for each supported type and operator that Options::types lets through, with tails of all
// kinds.
std::vector<Operation> all_kinds(const Options& options, const Support& support, const Geometry& geometry);

}  // namespace player
