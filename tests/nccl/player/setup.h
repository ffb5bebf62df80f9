// Functions that open communicators for the scenarios.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/player/communicator.h"
#include "tests/nccl/player/plugin.h"
#include "tests/nccl/player/traffic.h"

namespace player {

// Returns a communicator ID that is the same on all ranks.
uint64_t hash_comm_id(const std::string& name);

using Support = std::array<std::array<bool, kReduceOps>, kDataTypes>;
// Queries reduceSupport like NCCL at setup, and for unknown types and operators, which a newer NCCL may have.
Support query_support(CollNet& collnet);

// OpenCommunicator holds a connected communicator of all ranks or of one head, and its traffic.
struct OpenCommunicator {
  Contexts contexts;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Traffic> traffic;

  void close(Plugin& plugin);
};
// Connects one head. `contexts` are those of its communicator. Throws Failure if connect fails.
OpenCommunicator open_head(Rank& rank, Plugin& plugin, const Contexts& contexts, Group group,
                           Geometry geometry);
OpenCommunicator open_communicator(Rank& rank, Plugin& plugin, const std::string& name,
                                   Geometry geometry = {});
Group all_ranks(const Rank& rank, const std::string& name);
// The group of these ranks of the job, ascending; this rank is one of them.
Group group_of(const Rank& rank, const std::string& name, const std::vector<int>& members);

// Runs the tasks concurrently and throws the exception of the first that failed.
void run_concurrently(const std::vector<std::function<void()>>& tasks);

// For limits of a call's duration.
long milliseconds_since(Clock::time_point begin);

// Operations of three types, each in and out of place. Other seeds have other results, so data of another
// communicator is detected.
std::vector<Operation> mixed_operations(uint64_t seed);

// Whether Options::types allows the type.
bool allows(const Options& options, DataType type);

// Returns one operation for each supported type and operator that Options::types allows, with complete and
// incomplete chunks.
std::vector<Operation> all_operations(const Options& options, const Support& support,
                                      const Geometry& geometry);

}  // namespace player
