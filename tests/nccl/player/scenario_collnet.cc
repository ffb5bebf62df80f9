#include <atomic>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

void finish(Rank& rank, Plugin& plugin, OpenCommunicator& open) {
  rank.print("requests " + std::to_string(open.traffic->counts().requests) + " retries " +
             std::to_string(open.traffic->counts().retries));
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace

void run_kinds(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "kinds");
  const Support support = query_support(plugin.collnet());
  open.traffic->find_fold_order();
  open.traffic->run(all_operations(rank.options(), support, open.communicator->geometry()));
  finish(rank, plugin, open);
}

void run_in_place(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  // 16 channels form two groups.
  OpenCommunicator open = open_communicator(rank, plugin, "in place", {16, 4u << 20});
  const Support support = query_support(plugin.collnet());
  open.traffic->find_fold_order();
  std::vector<Operation> operations = all_operations(rank.options(), support, {2, 4u << 20});
  for (Operation& operation : operations) operation.in_place = true;
  uint64_t seed = 500;
  for (const DataType type : {kFloat32, kBfloat16, kInt8}) {
    if (!allows(rank.options(), type)) continue;
    for (const bool in_place : {true, false, true}) {
      operations.push_back({type, kSum, (3u << 20) + 512, 16, 128u << 10, ++seed, in_place});
      // Each channel holds less than a chunk of the engine.
      operations.push_back({type, kMax, 96u << 10, 16, 512, ++seed, in_place});
    }
  }
  open.traffic->run(operations);
  finish(rank, plugin, open);
}

void run_window(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  // 16 channels form two groups, each with eight open requests of 2 MiB.
  OpenCommunicator open = open_communicator(rank, plugin, "window", {16, 4u << 20});
  open.traffic->find_fold_order();
  constexpr size_t kKib = 1024;
  std::vector<Operation> operations;
  uint64_t seed = 100;
  struct {
    int channels;
    size_t chunk, bytes;
  } const shapes[] = {
      {2, 128 * kKib, 3072 * kKib + 8}, {8, 256 * kKib, 10240 * kKib}, {16, 256 * kKib, 20480 * kKib + 512},
      {12, 32 * kKib, 4096 * kKib},     {1, 512, 64 * kKib},           {16, 512, 96 * kKib + 8},
      {2, 512 * kKib, 2048 * kKib},
  };
  for (const auto& shape : shapes)
    operations.push_back({kFloat32, kSum, shape.bytes, shape.channels, shape.chunk, ++seed});
  for (Operation& operation : operations) {
    if (rank.options().bytes != 0) operation.bytes = std::min(operation.bytes, rank.options().bytes);
  }
  open.traffic->run(operations);
  finish(rank, plugin, open);
}

void run_order(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const Contexts contexts = plugin.init(hash_comm_id("order"));
  Group group = all_ranks(rank, "order");
  group.place = (rank.index() + 1) % rank.count();
  OpenCommunicator open = open_head(rank, plugin, contexts, group, {});
  open.traffic->find_fold_order();
  open.traffic->run(
      {{kFloat32, kSum, 400'000, 2, 32u << 10, 1}, {kBfloat16, kSum, 100'000, 2, 32u << 10, 2}});
  std::string order = "fold order of handles";
  for (const int place : open.traffic->order()) order += " " + std::to_string(place);
  rank.print(order);
  rank.barrier("before close");
  open.close(plugin);
}

void run_registration(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "registration");
  open.traffic->find_fold_order();
  Communicator& communicator = *open.communicator;
  std::atomic<bool> stop = false;
  std::vector<std::byte> user_buffer(1u << 20);
  uint64_t registered = 0;
  Worker::StartedTask registering = communicator.service().start([&] {
    // User buffers are registered and deregistered, some twice. The region in use stays registered.
    for (; !stop; ++registered) {
      void *first = nullptr, *second = nullptr;
      const size_t at = (registered * 4096) % user_buffer.size();
      std::byte* const data = user_buffer.data() + at;
      const size_t bytes = user_buffer.size() - at;
      require_success(plugin.collnet().reg_mr(communicator.comm(), data, bytes, &first), "regMr");
      require_success(plugin.collnet().reg_mr(communicator.comm(), data, bytes, &second), "regMr");
      if (first != nullptr) require_success(plugin.collnet().dereg_mr(communicator.comm(), first), "deregMr");
      if (second != nullptr)
        require_success(plugin.collnet().dereg_mr(communicator.comm(), second), "deregMr");
    }
  });
  std::exception_ptr failed;
  try {
    std::vector<Operation> operations;
    for (uint64_t seed = 1; seed <= 8; ++seed)
      operations.push_back({kFloat16, kSum, 1'000'000, 2, 64u << 10, seed});
    open.traffic->run(operations);
  } catch (...) {
    failed = std::current_exception();
  }
  stop = true;
  registering.get();
  if (failed) std::rethrow_exception(failed);
  require(registered > 0, "no buffer was registered during the traffic");
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
