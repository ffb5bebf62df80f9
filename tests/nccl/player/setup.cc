#include "tests/nccl/player/setup.h"

#include <algorithm>
#include <future>

#include "tests/nccl/player/failure.h"

namespace player {

uint64_t hash_comm_id(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Support query_support(CollNet& collnet) {
  Support support{};
  for (int type = 0; type < kDataTypes + 4; ++type) {
    for (int op = 0; op < kReduceOps + 4; ++op) {
      int supported = -1;
      require_success(collnet.reduce_support(type, op, &supported), "CollNet reduceSupport");
      require(supported == 0 || supported == 1, "reduceSupport did not set *supported");
      const bool known = type < kDataTypes && op < kReduceOps;
      require(known || supported == 0, "reduceSupport supports an unknown type or operator");
      if (known) support[type][op] = supported == 1;
    }
  }
  require(support[kFloat32][kSum] && support[kFloat16][kSum] && support[kBfloat16][kSum],
          "the sum of float32, float16 or bfloat16 is not supported");
  return support;
}

Group all_ranks(const Rank& rank, const std::string& name) {
  return {name, rank.count(), rank.index(), rank.index(), std::max(rank.options().device, 0)};
}

Group group_of(const Rank& rank, const std::string& name, const std::vector<int>& members) {
  const auto own = std::find(members.begin(), members.end(), rank.index());
  require(own != members.end(), "rank " + std::to_string(rank.index()) + " is not in " + name);
  const auto place = static_cast<int>(own - members.begin());
  return {name, static_cast<int>(members.size()), place, place, std::max(rank.options().device, 0)};
}

void run_concurrently(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::future<void>> running;
  for (const std::function<void()>& task : tasks)
    running.push_back(std::async(std::launch::async, [&task] { task(); }));
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

long milliseconds_since(Clock::time_point begin) {
  return static_cast<long>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
}

std::vector<Operation> mixed_operations(uint64_t seed) {
  std::vector<Operation> all;
  for (const bool in_place : {false, true}) {
    all.push_back({kFloat32, kSum, 300'000, 2, 32u << 10, seed * 8 + 1, in_place});
    all.push_back({kBfloat16, kSum, 200'000, 2, 32u << 10, seed * 8 + 2, in_place});
    all.push_back({kInt32, kMax, 70'000, 2, 32u << 10, seed * 8 + 3, in_place});
  }
  return all;
}

OpenCommunicator open_head(Rank& rank, Plugin& plugin, const Contexts& contexts, Group group,
                           Geometry geometry) {
  OpenCommunicator open;
  open.contexts = contexts;
  open.communicator =
      std::make_unique<Communicator>(rank, plugin.collnet(), contexts.collnet, std::move(group), geometry);
  const Result result = open.communicator->connect();
  require(result == kSuccess, "connect failed: " + std::to_string(result));
  open.communicator->register_region();
  open.traffic = std::make_unique<Traffic>(*open.communicator);
  return open;
}

OpenCommunicator open_communicator(Rank& rank, Plugin& plugin, const std::string& name, Geometry geometry) {
  const Contexts contexts = plugin.init(hash_comm_id(name));
  return open_head(rank, plugin, contexts, all_ranks(rank, name), geometry);
}

void OpenCommunicator::close(Plugin& plugin) {
  communicator->close();
  plugin.finalize(contexts);
}

bool allows(const Options& options, DataType type) {
  return options.types.empty() ||
         ("," + options.types + ",").find("," + std::string(name_of(type)) + ",") != std::string::npos;
}

std::vector<Operation> all_operations(const Options& options, const Support& support,
                                      const Geometry& geometry) {
  const size_t chunk = 32u << 10, step = static_cast<size_t>(geometry.channels) * chunk;
  // Less than a chunk; whole chunks; an incomplete chunk; whole channels of padding.
  const size_t sizes[] = {8, step, 2 * step + chunk / 2 + 24, 9 * step + 8};
  std::vector<Operation> all;
  uint64_t seed = 1;
  for (int type = 0; type < kDataTypes; ++type) {
    if (!allows(options, static_cast<DataType>(type))) continue;
    for (int op = 0; op < kReduceOps; ++op) {
      if (!support[type][op]) continue;
      Operation operation{static_cast<DataType>(type),
                          static_cast<ReduceOp>(op),
                          sizes[seed % 4],
                          geometry.channels,
                          chunk,
                          seed};
      if (options.bytes != 0) operation.bytes = options.bytes;
      all.push_back(operation);
      ++seed;
    }
  }
  require(!all.empty(), "no supported type is selected");
  return all;
}

}  // namespace player
