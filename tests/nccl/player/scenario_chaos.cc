#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

constexpr uint64_t kRoundsPerLine = 10;

// A pseudorandom sequence that is the same on all ranks (Knuth's MMIX).
uint64_t next(uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 33;
}

// Types and operators whose results depend on every contribution and on the fold order. The buffers change
// between operations, so a retransmission from a reused buffer has wrong data and is detected.
std::vector<Operation> operations_of(uint64_t round) {
  constexpr std::pair<DataType, ReduceOp> kKinds[] = {{kFloat32, kSum}, {kBfloat16, kSum}, {kFloat16, kSum},
                                                      {kInt32, kMax},   {kUint64, kSum},   {kFloat64, kProd}};
  uint64_t state = round;
  std::vector<Operation> all;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const auto [type, op] = kKinds[next(state) % std::size(kKinds)];
    const size_t limit = size_t{8} << (next(state) % 18);  // 8 bytes to 1 MiB, on a logarithmic scale
    Operation operation{type,
                        op,
                        8 * (1 + next(state) % limit / 8),
                        1 + static_cast<int>(next(state) % 2),
                        size_t{16384} << (next(state) % 3),
                        round * std::size(kKinds) + i};
    operation.in_place = next(state) % 2 == 0;
    all.push_back(operation);
  }
  return all;
}

}  // namespace

void run_until_stopped(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "until stopped");
  open.traffic->find_fold_order();
  uint64_t round = 0;
  for (bool stop = false; !stop; ++round) {
    open.traffic->run(operations_of(round));
    const bool stdin_closed = rank.index() == 0 && stdin_ended();
    const Block own(1, stdin_closed ? std::byte{1} : std::byte{0});
    stop = rank.bootstrap().all_gather("round", rank.index(), rank.count(), own)[0][0] != std::byte{0};
    if (rank.index() == 0 && round % kRoundsPerLine == 0) rank.print("round " + std::to_string(round));
  }
  rank.print("all right: " + std::to_string(round) + " rounds, " +
             std::to_string(open.traffic->counts().requests) + " requests");
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
