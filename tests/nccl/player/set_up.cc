#include "tests/nccl/player/set_up.h"

#include <algorithm>

#include "tests/nccl/player/failure.h"

namespace player {

uint64_t comm_id_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

Support ask_support(CollNet& collnet) {
  Support support{};
  for (int type = 0; type < kDataTypes + 4; ++type) {
    for (int op = 0; op < kReduceOps + 4; ++op) {
      int supported = -1;
      require_success(collnet.reduce_support(type, op, &supported), "CollNet reduceSupport");
      require(supported == 0 || supported == 1, "reduceSupport left *supported as it was");
      const bool known = type < kDataTypes && op < kReduceOps;
      require(known || supported == 0, "reduceSupport knows a type or operator that there is not");
      if (known) support[type][op] = supported == 1;
    }
  }
  require(support[kFloat32][kSum] && support[kFloat16][kSum] && support[kBfloat16][kSum],
          "sums of f32, f16, bf16 are not supported");
  return support;
}

Group everybody(const Rank& rank, const std::string& name) {
  return {name, rank.count(), rank.index(), rank.index(), std::max(rank.options().device, 0)};
}

Open open_head(Rank& rank, Plugin& plugin, const Contexts& contexts, Group group, Geometry geometry) {
  Open open;
  open.contexts = contexts;
  open.communicator =
      std::make_unique<Communicator>(rank, plugin.collnet(), contexts.collnet, std::move(group), geometry);
  const Result result = open.communicator->connect();
  require(result == kSuccess, "connect failed: " + std::to_string(result));
  open.communicator->register_region();
  open.traffic = std::make_unique<Traffic>(*open.communicator);
  return open;
}

Open open_communicator(Rank& rank, Plugin& plugin, const std::string& name, Geometry geometry) {
  const Contexts contexts = plugin.begin(comm_id_of(name));
  return open_head(rank, plugin, contexts, everybody(rank, name), geometry);
}

void Open::close(Plugin& plugin) {
  communicator->close();
  plugin.end(contexts);
}

std::vector<Operation> all_kinds(const Options& options, const Support& support, const Geometry& geometry) {
  const size_t chunk = 32u << 10, step = static_cast<size_t>(geometry.channels) * chunk;
  // Less than a chunk; whole chunks; a tail within a chunk; whole channels of stale bytes.
  const size_t sizes[] = {8, step, 2 * step + chunk / 2 + 24, 9 * step + 8};
  std::vector<Operation> all;
  uint64_t seed = 1;
  for (int type = 0; type < kDataTypes; ++type) {
    const std::string name = name_of(static_cast<DataType>(type));
    if (!options.types.empty() && ("," + options.types + ",").find("," + name + ",") == std::string::npos)
      continue;
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
  require(!all.empty(), "no type to reduce");
  return all;
}

}  // namespace player
