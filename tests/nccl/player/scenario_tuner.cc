// The rule that the tuner has to keep (README, NCCL): where offload wins, the cheaper of CollNetDirect and
// CollNetChain becomes the cheapest; elsewhere both and multi-node NVLS are taken out, unless nothing else is
// left.
#include <algorithm>
#include <cstring>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/set_up.h"
#include "tests/nccl/player/tuner.h"

namespace player {
namespace {

constexpr float kIgnored = -1;
constexpr size_t kLarge = 64u << 20, kSmall = 1024;

struct Prices {
  CostTable costs;

  // Every algorithm possible, the ring's Simple cheapest, Chain cheaper than Direct.
  Prices() {
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      for (int protocol = 0; protocol < kProtocols; ++protocol) {
        const bool simple_only = algorithm >= kCollNetDirect && algorithm != kNvlsTree;
        costs[algorithm][protocol] = simple_only && protocol != kSimple
                                         ? kIgnored
                                         : 1000.0f + 100.0f * static_cast<float>(algorithm + protocol);
      }
    }
    costs[kRing][kSimple] = 500;
    costs[kCollNetChain][kSimple] = 900;
    costs[kCollNetDirect][kSimple] = 950;
  }
  Prices& without(int algorithm) {
    for (float& cost : costs[algorithm]) cost = kIgnored;
    return *this;
  }
  [[nodiscard]] float of(int algorithm) const { return costs[algorithm][kSimple]; }
  // As NCCL picks: the least of what is not ignored; -1 where there is none.
  [[nodiscard]] int winner() const {
    int best = -1;
    float least = 0;
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      for (const float cost : costs[algorithm]) {
        if (cost == kIgnored || (best >= 0 && cost >= least)) continue;
        best = algorithm;
        least = cost;
      }
    }
    return best;
  }
};

struct Session {
  Tuner& tuner;
  void* context = nullptr;

  Prices ask(Function function, size_t bytes, const Prices& before) {
    Prices after = before;
    int channels = 0;
    require_success(tuner.tune(context, function, bytes, after.costs, &channels), "tuner getCollInfo");
    require(channels == 0, "the tuner chose a number of channels");
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      for (int protocol = 0; protocol < kProtocols; ++protocol) {
        const float was = before.costs[algorithm][protocol], is = after.costs[algorithm][protocol];
        const std::string where =
            "algorithm " + std::to_string(algorithm) + ", protocol " + std::to_string(protocol);
        require(was != kIgnored || is == kIgnored, where + ": brought back to life");
        require(is == kIgnored || is >= 0, where + ": a price below nothing");
        require(is == kIgnored || is <= was, where + ": made dearer");
        const bool may_change =
            algorithm == kCollNetDirect || algorithm == kCollNetChain || algorithm == kNvls;
        require(is == was || may_change, where + ": is none of the tuner's business");
        require(is == was || is == kIgnored || algorithm != kNvls, where + ": NVLS made cheaper");
      }
    }
    return after;
  }
};

void check_taken_out(const Prices& after, const std::string& when) {
  require(after.of(kCollNetDirect) == kIgnored && after.of(kCollNetChain) == kIgnored,
          when + ": CollNet is still there");
  require(after.of(kNvls) == kIgnored, when + ": multi-node NVLS is still there");
  require(after.winner() == kRing, when + ": the ring does not win");
}

enum class Offload { kOn, kNever, kNotConnected };

void check_prices(Tuner& tuner, uint64_t comm_id, Offload offload) {
  Session session{tuner};
  require_success(tuner.init(comm_id, 8, 4, &session.context), "tuner init");
  const Prices all;
  if (offload == Offload::kOn) {
    require(session.ask(kAllReduce, kLarge, all).winner() == kCollNetChain,
            "a large allreduce on four nodes does not go to Chain");
    Prices direct;
    direct.costs[kCollNetDirect][kSimple] = 800;
    require(session.ask(kAllReduce, kLarge, direct).winner() == kCollNetDirect,
            "Direct is cheaper than Chain and does not win");
    require(session.ask(kAllReduce, kLarge, Prices().without(kCollNetDirect)).winner() == kCollNetChain,
            "without Direct, Chain does not win");
  } else if (offload == Offload::kNever) {
    check_taken_out(session.ask(kAllReduce, kLarge, all), "a large allreduce without offload");
  }
  // A communicator or type without CollNet: NCCL has taken it out already.
  const Prices none =
      session.ask(kAllReduce, kLarge, Prices().without(kCollNetDirect).without(kCollNetChain).without(kNvls));
  require(none.winner() == kRing, "without CollNet the ring does not win");
  check_taken_out(session.ask(kAllReduce, kSmall, all), "a small allreduce");
  check_taken_out(session.ask(kAllGather, kLarge, all), "an all-gather");
  check_taken_out(session.ask(kReduceScatter, kLarge, all), "a reduce-scatter");
  Prices only_collnet;
  for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    if (algorithm != kCollNetDirect && algorithm != kCollNetChain) only_collnet.without(algorithm);
  }
  require(session.ask(kAllReduce, kSmall, only_collnet).winner() >= 0,
          "nothing is left for a small allreduce");
  const Prices broadcast =
      session.ask(kBroadcast, kLarge, Prices().without(kCollNetDirect).without(kCollNetChain).without(kNvls));
  require(broadcast.winner() == kRing, "a broadcast was touched");

  size_t chunk = 128u << 10;
  require_success(tuner.chunk_size(session.context, kAllReduce, kLarge, kCollNetChain, kSimple, 2, &chunk),
                  "tuner getChunkSize");
  require(chunk >= 512 && chunk % 512 == 0 && chunk <= 16u << 20,
          "a chunk of " + std::to_string(chunk) + " bytes");
  size_t ring_chunk = 128u << 10;
  require_success(tuner.chunk_size(session.context, kAllReduce, kLarge, kRing, kSimple, 2, &ring_chunk),
                  "tuner getChunkSize");
  require(ring_chunk == 128u << 10, "the ring's chunk was changed");
  require_success(tuner.end(session.context), "tuner end");

  // Two nodes gain nothing.
  Session two{tuner};
  require_success(tuner.init(comm_id + 1, 16, 2, &two.context), "tuner init");
  check_taken_out(two.ask(kAllReduce, kLarge, all), "two nodes");
  require_success(tuner.end(two.context), "tuner end");
}

void check_choices(Tuner& tuner, uint64_t comm_id, Offload offload) {
  void* context = nullptr;
  require_success(tuner.init(comm_id, 8, 4, &context), "tuner init");
  const auto chosen = [&](Function function, size_t bytes, bool collnet) {
    int algorithm = -1, protocol = -1, channels = 0;
    require_success(tuner.choose(context, function, bytes, collnet, &algorithm, &protocol, &channels),
                    "tuner getCollInfo");
    require(channels == 0, "the tuner chose a number of channels");
    require((algorithm == -1) == (protocol == -1), "only one of algorithm and protocol was chosen");
    const bool is_collnet = algorithm == kCollNetDirect || algorithm == kCollNetChain;
    require(!is_collnet || protocol == kSimple, "CollNet has no protocol but Simple");
    return is_collnet;
  };
  // Where connect failed, NCCL says that there is no CollNet.
  if (offload == Offload::kOn)
    require(chosen(kAllReduce, kLarge, true), "a large allreduce is not offloaded");
  if (offload == Offload::kNever) require(!chosen(kAllReduce, kLarge, true), "an allreduce is offloaded");
  require(!chosen(kAllReduce, kLarge, false), "CollNet was chosen where there is none");
  require(!chosen(kAllReduce, kSmall, true), "a small allreduce was offloaded");
  require(!chosen(kAllGather, kLarge, true) && !chosen(kReduceScatter, kLarge, true),
          "AllGather or ReduceScatter was offloaded");
  require_success(tuner.end(context), "tuner end");
}

void check(Tuner& tuner, uint64_t comm_id, Offload offload) {
  if (tuner.is_choice()) {
    check_choices(tuner, comm_id, offload);
  } else {
    check_prices(tuner, comm_id, offload);
  }
}

}  // namespace

// Options::abi is the net's and CollNet's; every tuner of the file is played with it. With --expect fail
// CollNet's connect is to fail.
void play_tuner(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  const bool connects = rank.options().expect != "fail";
  const Offload offload = !connects                          ? Offload::kNotConnected
                          : rank.options().expect == "never" ? Offload::kNever
                                                             : Offload::kOn;
  const uint64_t comm_id = comm_id_of("tuner");
  const Contexts contexts = plugin.begin(comm_id);
  Communicator communicator(rank, plugin.collnet(), contexts.collnet, everybody(rank, "tuner"),
                            {2, 1u << 20});
  require((communicator.connect() == kSuccess) == connects, "connect");
  if (connects) communicator.register_region();
  for (int abi = kFirstTunerAbi; abi <= kLastTunerAbi; ++abi) {
    rank.step("tuner v" + std::to_string(abi));
    const std::unique_ptr<Tuner> tuner = load_tuner(plugin.library(), abi);
    check(*tuner, comm_id, offload);
  }
  rank.barrier("before close");
  if (connects) communicator.close();
  plugin.end(contexts);
}

}  // namespace player
