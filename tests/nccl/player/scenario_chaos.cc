#include <poll.h>
#include <unistd.h>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/set_up.h"

namespace player {
namespace {

// Rounds between two lines for whoever watches.
constexpr uint64_t kSayEvery = 10;

bool stdin_ended() {
  pollfd p{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&p, 1, 0) == 1;
}

// The next of a sequence that is the same on all ranks (Knuth's MMIX).
uint64_t next(uint64_t& state) {
  state = state * 6364136223846793005U + 1442695040888963407U;
  return state >> 33;
}

// Types and operators whose sums show every contribution and the order they were made in; a rank's buffers
// come and go between them, so that what is sent again must not be what lies there by then.
std::vector<Operation> operations_of(uint64_t round) {
  constexpr std::pair<DataType, ReduceOp> kKinds[] = {{kFloat32, kSum}, {kBfloat16, kSum}, {kFloat16, kSum},
                                                      {kInt32, kMax},   {kUint64, kSum},   {kFloat64, kProd}};
  uint64_t state = round;
  std::vector<Operation> all;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    const auto [type, op] = kKinds[next(state) % std::size(kKinds)];
    const size_t most = size_t{8} << (next(state) % 18);  // 8 bytes to 1 MiB, small ones as often as large
    Operation operation{type,
                        op,
                        8 * (1 + next(state) % most / 8),
                        1 + static_cast<int>(next(state) % 2),
                        size_t{16384} << (next(state) % 3),
                        round * std::size(kKinds) + i};
    operation.in_place = next(state) % 2 == 0;
    all.push_back(operation);
  }
  return all;
}

}  // namespace

void play_until_stopped(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "until stopped");
  open.traffic->learn_order();
  uint64_t round = 0;
  for (bool stop = false; !stop; ++round) {
    open.traffic->run(operations_of(round));
    const bool asked = rank.index() == 0 && stdin_ended();
    const Block mine(1, asked ? std::byte{1} : std::byte{0});
    stop = rank.bootstrap().all_gather("round", rank.index(), rank.count(), mine)[0][0] != std::byte{0};
    if (rank.index() == 0 && round % kSayEvery == 0) rank.say("round " + std::to_string(round));
  }
  rank.say("all right: " + std::to_string(round) + " rounds, " +
           std::to_string(open.traffic->counts().requests) + " requests");
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
