// Checks the rule of the tuner (docs/guides/nccl.md): where offload is faster, the cheaper of CollNetDirect
// and CollNetChain becomes the cheapest algorithm. Elsewhere both and multi-node NVLS are excluded, unless no
// other algorithm is left.
#include <algorithm>
#include <cstring>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"
#include "tests/nccl/player/tuner.h"

namespace player {
namespace {

constexpr float kIgnored = -1;
constexpr size_t kLarge = 64u << 20, kSmall = 1024;

struct Costs {
  CostTable costs;

  // All algorithms are possible; the ring with Simple is the cheapest, and Chain is cheaper than Direct.
  Costs() {
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
  Costs& without(int algorithm) {
    for (float& cost : costs[algorithm]) cost = kIgnored;
    return *this;
  }
  [[nodiscard]] float of(int algorithm) const { return costs[algorithm][kSimple]; }
  // NCCL's choice: the least cost that is not ignored; -1 if all are ignored.
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

struct TunerSession {
  Tuner& tuner;
  void* context = nullptr;

  Costs query(Function function, size_t bytes, const Costs& before) {
    Costs after = before;
    int channels = 0;
    require_success(tuner.tune(context, function, bytes, after.costs, &channels), "tuner getCollInfo");
    require(channels == 0, "the tuner changed the number of channels");
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      for (int protocol = 0; protocol < kProtocols; ++protocol) {
        const float was = before.costs[algorithm][protocol], is = after.costs[algorithm][protocol];
        const std::string where =
            "algorithm " + std::to_string(algorithm) + ", protocol " + std::to_string(protocol);
        require(was != kIgnored || is == kIgnored, where + ": an excluded algorithm was included");
        require(is == kIgnored || is >= 0, where + ": the cost is negative");
        require(is == kIgnored || is <= was, where + ": the cost was raised");
        const bool may_change =
            algorithm == kCollNetDirect || algorithm == kCollNetChain || algorithm == kNvls;
        require(is == was || may_change, where + ": the cost was changed, but only CollNet and NVLS may be");
        require(is == was || is == kIgnored || algorithm != kNvls, where + ": the cost of NVLS was lowered");
      }
    }
    return after;
  }
};

void check_excluded(const Costs& after, const std::string& when) {
  require(after.of(kCollNetDirect) == kIgnored && after.of(kCollNetChain) == kIgnored,
          when + ": CollNet is not excluded");
  require(after.of(kNvls) == kIgnored, when + ": multi-node NVLS is not excluded");
  require(after.winner() == kRing, when + ": NCCL does not choose the ring");
}

enum class Offload { kOn, kNever, kNotConnected };

void check_cost_table(Tuner& tuner, uint64_t comm_id, Offload offload) {
  TunerSession session{tuner};
  require_success(tuner.init(comm_id, 8, 4, &session.context), "tuner init");
  const Costs all;
  if (offload == Offload::kOn) {
    require(session.query(kAllReduce, kLarge, all).winner() == kCollNetChain,
            "NCCL does not choose Chain for a large allreduce on four nodes");
    Costs direct;
    direct.costs[kCollNetDirect][kSimple] = 800;
    require(session.query(kAllReduce, kLarge, direct).winner() == kCollNetDirect,
            "Direct is cheaper than Chain, but NCCL does not choose it");
    require(session.query(kAllReduce, kLarge, Costs().without(kCollNetDirect)).winner() == kCollNetChain,
            "without Direct, NCCL does not choose Chain");
  } else if (offload == Offload::kNever) {
    check_excluded(session.query(kAllReduce, kLarge, all), "a large allreduce without offload");
  }
  // Without CollNet for a communicator or type, NCCL has already excluded it.
  const Costs without_collnet = Costs().without(kCollNetDirect).without(kCollNetChain).without(kNvls);
  const Costs none = session.query(kAllReduce, kLarge, without_collnet);
  require(none.winner() == kRing, "without CollNet, NCCL does not choose the ring");
  check_excluded(session.query(kAllReduce, kSmall, all), "a small allreduce");
  check_excluded(session.query(kAllGather, kLarge, all), "an all-gather");
  check_excluded(session.query(kReduceScatter, kLarge, all), "a reduce-scatter");
  Costs only_collnet;
  for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
    if (algorithm != kCollNetDirect && algorithm != kCollNetChain) only_collnet.without(algorithm);
  }
  require(session.query(kAllReduce, kSmall, only_collnet).winner() >= 0,
          "all algorithms are excluded for a small allreduce");
  const Costs broadcast = session.query(kBroadcast, kLarge, without_collnet);
  require(broadcast.winner() == kRing, "the costs of a broadcast were changed");

  size_t chunk = 128u << 10;
  require_success(tuner.chunk_size(session.context, kAllReduce, kLarge, kCollNetChain, kSimple, 2, &chunk),
                  "tuner getChunkSize");
  require(chunk >= 512 && chunk % 512 == 0 && chunk <= 16u << 20,
          "invalid chunk size of " + std::to_string(chunk) + " bytes");
  size_t ring_chunk = 128u << 10;
  require_success(tuner.chunk_size(session.context, kAllReduce, kLarge, kRing, kSimple, 2, &ring_chunk),
                  "tuner getChunkSize");
  require(ring_chunk == 128u << 10, "the chunk size of the ring was changed");
  require_success(tuner.end(session.context), "tuner end");

  // Offload is not faster on two nodes.
  TunerSession two{tuner};
  require_success(tuner.init(comm_id + 1, 16, 2, &two.context), "tuner init");
  check_excluded(two.query(kAllReduce, kLarge, all), "two nodes");
  require_success(tuner.end(two.context), "tuner end");
}

void check_choices(Tuner& tuner, uint64_t comm_id, Offload offload) {
  void* context = nullptr;
  require_success(tuner.init(comm_id, 8, 4, &context), "tuner init");
  const auto chosen = [&](Function function, size_t bytes, bool collnet) {
    int algorithm = -1, protocol = -1, channels = 0;
    require_success(tuner.choose(context, function, bytes, collnet, &algorithm, &protocol, &channels),
                    "tuner getCollInfo");
    require(channels == 0, "the tuner changed the number of channels");
    require((algorithm == -1) == (protocol == -1), "only one of algorithm and protocol was chosen");
    const bool is_collnet = algorithm == kCollNetDirect || algorithm == kCollNetChain;
    require(!is_collnet || protocol == kSimple, "CollNet was chosen with a protocol other than Simple");
    return is_collnet;
  };
  // After a failed connect, NCCL calls the tuner without CollNet.
  if (offload == Offload::kOn)
    require(chosen(kAllReduce, kLarge, true), "a large allreduce is not offloaded");
  if (offload == Offload::kNever) require(!chosen(kAllReduce, kLarge, true), "an allreduce is offloaded");
  require(!chosen(kAllReduce, kLarge, false), "CollNet was chosen although it is not available");
  require(!chosen(kAllReduce, kSmall, true), "a small allreduce was offloaded");
  require(!chosen(kAllGather, kLarge, true) && !chosen(kReduceScatter, kLarge, true),
          "AllGather or ReduceScatter was offloaded");
  require_success(tuner.end(context), "tuner end");
}

void check(Tuner& tuner, uint64_t comm_id, Offload offload) {
  if (tuner.is_choice()) {
    check_choices(tuner, comm_id, offload);
  } else {
    check_cost_table(tuner, comm_id, offload);
  }
}

}  // namespace

// Options::abi is the version of net and CollNet. All tuner versions of the file are tested with it. With
// --expect fail, CollNet's connect must fail.
void run_tuner(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const bool connects = rank.options().expect != "fail";
  const Offload offload = !connects                          ? Offload::kNotConnected
                          : rank.options().expect == "never" ? Offload::kNever
                                                             : Offload::kOn;
  const uint64_t comm_id = hash_comm_id("tuner");
  const Contexts contexts = plugin.init(comm_id);
  Communicator communicator(rank, plugin.collnet(), contexts.collnet, all_ranks(rank, "tuner"),
                            {2, 1u << 20});
  require((communicator.connect() == kSuccess) == connects,
          connects ? "CollNet connect failed" : "CollNet connect succeeded, but must fail");
  if (connects) communicator.register_region();
  for (int abi = kFirstTunerAbi; abi <= kLastTunerAbi; ++abi) {
    rank.step("tuner v" + std::to_string(abi));
    const std::unique_ptr<Tuner> tuner = load_tuner(plugin.library(), abi);
    check(*tuner, comm_id, offload);
  }
  rank.barrier("before close");
  if (connects) communicator.close();
  plugin.finalize(contexts);
}

}  // namespace player
