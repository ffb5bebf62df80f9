#include <atomic>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/set_up.h"

namespace player {

void play_kinds(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "kinds");
  const Support support = ask_support(plugin.collnet());
  open.traffic->learn_order();
  open.traffic->run(all_kinds(rank.options(), support, open.communicator->geometry()));
  rank.say("requests " + std::to_string(open.traffic->counts().requests) + " retries " +
           std::to_string(open.traffic->counts().retries));
  rank.barrier("before close");
  open.close(plugin);
}

void play_in_place(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  // 16 channels make two groups.
  Open open = open_communicator(rank, plugin, "in place", {16, 4u << 20});
  const Support support = ask_support(plugin.collnet());
  open.traffic->learn_order();
  std::vector<Operation> operations = all_kinds(rank.options(), support, {2, 4u << 20});
  for (Operation& operation : operations) operation.in_place = true;
  uint64_t seed = 500;
  for (const DataType type : {kFloat32, kBfloat16, kInt8}) {
    for (const bool in_place : {true, false, true}) {
      operations.push_back({type, kSum, (3u << 20) + 512, 16, 128u << 10, ++seed, in_place});
      // Each channel less than a chunk of the engine's.
      operations.push_back({type, kMax, 96u << 10, 16, 512, ++seed, in_place});
    }
  }
  open.traffic->run(operations);
  rank.say("requests " + std::to_string(open.traffic->counts().requests) + " retries " +
           std::to_string(open.traffic->counts().retries));
  rank.barrier("before close");
  open.close(plugin);
}

void play_window(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  // 16 channels make two groups, each with eight requests of 2 MiB open.
  Open open = open_communicator(rank, plugin, "window", {16, 4u << 20});
  open.traffic->learn_order();
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
  rank.say("requests " + std::to_string(open.traffic->counts().requests) + " retries " +
           std::to_string(open.traffic->counts().retries));
  rank.barrier("before close");
  open.close(plugin);
}

void play_order(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  const Contexts contexts = plugin.begin(comm_id_of("order"));
  Group group = everybody(rank, "order");
  group.place = (rank.index() + 1) % rank.count();
  Open open = open_head(rank, plugin, contexts, group, {});
  open.traffic->learn_order();
  open.traffic->run(
      {{kFloat32, kSum, 400'000, 2, 32u << 10, 1}, {kBfloat16, kSum, 100'000, 2, 32u << 10, 2}});
  std::string order = "fold order of handles";
  for (const int place : open.traffic->order()) order += " " + std::to_string(place);
  rank.say(order);
  rank.barrier("before close");
  open.close(plugin);
}

void play_registration(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "registration");
  open.traffic->learn_order();
  Communicator& communicator = *open.communicator;
  std::atomic<bool> stop = false;
  std::vector<std::byte> other(1u << 20);
  uint64_t registered = 0;
  Worker::Begun registering = communicator.service().start([&] {
    // User buffers come and go, some twice; the region that is in use stays registered.
    for (; !stop; ++registered) {
      void *first = nullptr, *second = nullptr;
      const size_t at = (registered * 4096) % other.size();
      require_success(
          plugin.collnet().reg_mr(communicator.comm(), other.data() + at, other.size() - at, &first),
          "regMr");
      require_success(
          plugin.collnet().reg_mr(communicator.comm(), other.data() + at, other.size() - at, &second),
          "regMr");
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
  require(registered > 0, "nothing was registered meanwhile");
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
