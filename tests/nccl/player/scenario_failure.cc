#include <future>
#include <thread>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/set_up.h"

namespace player {
namespace {

// Longer than any call of a teardown may take; NCCL's destroy waits for it.
constexpr auto kCloseBound = std::chrono::seconds(5);

// For the plugin to say that it waits.
constexpr auto kSayBound = std::chrono::seconds(20);

long milliseconds_since(Clock::time_point begin) {
  return static_cast<long>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
}

void close_in_time(Open& open, Plugin& plugin) {
  const auto begin = Clock::now();
  open.close(plugin);
  require(Clock::now() - begin < kCloseBound,
          "closing took " + std::to_string(milliseconds_since(begin)) + " ms");
}

// So many milliseconds of lateness are the case itself, and only with --late-ms: a rank comes to connect just
// before or just after the deadline of the others' join, or computes before its first request. No event could
// stand for that.
void come_late(int late_ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
}

constexpr Operation kSome{kFloat32, kSum, 4u << 20, 2, 64u << 10, 3};

}  // namespace

void play_abort(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "abort " + std::to_string(round);
    Open open = open_communicator(rank, plugin, name, {2, 1u << 20});
    open.traffic->learn_order();
    if (round % 2 == 1) open.traffic->run({{kFloat16, kSum, 200'000, 2, 32u << 10, 9}});
    // A rank that closes with requests open ends the session for all, also for one that has not taken its
    // last result.
    rank.barrier(name + " begins");
    // Rank 0 posts less than the others, so that some requests cannot be done; the close comes at once, or
    // when all have posted.
    const int open_requests = rank.index() == 0 ? round % kSteps : kSteps;
    try {
      open.traffic->leave_open({kFloat32, kSum, 1u << 20, 2, 64u << 10, 4}, open_requests);
    } catch (const CallFailed&) {
      // Another rank has closed already.
      require(round % 3 == 0, "an error although nobody has closed");
    }
    if (round % 3 != 0) rank.barrier(name + " posted");
    close_in_time(open, plugin);
  }
  Open again = open_communicator(rank, plugin, "after aborts");
  again.traffic->learn_order();
  again.traffic->run({kSome});
  rank.barrier("before close");
  again.close(plugin);
}

void play_abort_one(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "abort one", {2, 1u << 20});
  open.traffic->learn_order();
  rank.barrier("learnt");
  if (rank.index() == 0) {
    open.traffic->leave_open({kFloat32, kSum, 1u << 20, 2, 64u << 10, 3}, 2);
    (void)rank.bootstrap().all_gather("left open", 0, 2, {});
  } else {
    // So that none of rank 0's is done when it looks.
    if (rank.index() == 1) (void)rank.bootstrap().all_gather("left open", 1, 2, {});
    const auto begin = Clock::now();
    try {
      open.traffic->run({{kFloat32, kSum, 1u << 20, 2, 64u << 10, 3}});
      throw Failure("an allreduce was done although a rank took no part");
    } catch (const CallFailed& failed) {
      rank.say(std::string(failed.what()) + " after " + std::to_string(milliseconds_since(begin)) + " ms");
    }
  }
  close_in_time(open, plugin);
  rank.barrier("closed");
}

void play_connect(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  const std::string& expect = rank.options().expect;
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "connect " + std::to_string(round);
    const Contexts contexts = plugin.begin(comm_id_of(name));
    Open open;
    open.contexts = contexts;
    open.communicator = std::make_unique<Communicator>(rank, plugin.collnet(), contexts.collnet,
                                                       everybody(rank, name), Geometry{2, 1u << 20});
    const bool is_late = rank.index() == rank.options().late_rank;
    const std::string& late_until = rank.options().late_until;
    auto begin = Clock::now();
    open.communicator->before_connect = [&] {
      if (rank.index() == 0) rank.say("connecting");
      if (is_late) come_late(rank.options().late_ms);
      if (is_late && !late_until.empty()) rank.barrier(name + " late");
      begin = Clock::now();
    };
    std::future<void> waiting;
    if (!is_late && late_until == "waiting") {
      waiting = std::async(std::launch::async, [&] {
        require(wait_logged("waiting for", Clock::now() + kSayBound), "no line about waiting");
        rank.barrier(name + " late");
      });
    }
    const bool absent = rank.index() == rank.options().absent;
    if (absent) open.communicator->only_listen(rank.options().gone);
    const bool connected = !absent && open.communicator->connect() == kSuccess;
    const long took = milliseconds_since(begin);
    if (waiting.valid()) waiting.get();
    if (!is_late && late_until == "answered") rank.barrier(name + " late");

    const bool told = connected != (rank.index() == rank.options().contrary);
    const Block mine(1, told ? std::byte{1} : std::byte{0});
    int how_many = 0;
    for (const Block& answer :
         rank.bootstrap().all_gather(name + " answers", rank.index(), rank.count(), mine)) {
      how_many += answer[0] == std::byte{1} ? 1 : 0;
    }
    rank.say(std::string(connected ? "connected" : "refused") + " after " + std::to_string(took) + " ms");
    // Of one that is absent nobody may succeed.
    require(how_many == 0 || how_many == rank.count(),
            "connect succeeded on " + std::to_string(how_many) + " ranks only");
    require(expect == "same" || connected == (expect == "ok"), "connect was expected to: " + expect);
    if (!connected) {
      plugin.end(contexts);
      continue;
    }
    open.communicator->register_region();
    open.traffic = std::make_unique<Traffic>(*open.communicator);
    try {
      open.traffic->learn_order();
      open.traffic->run({{kFloat32, kSum, 1u << 20, 2, 32u << 10, 7}});
      rank.say("traffic done");
    } catch (const CallFailed& failed) {
      // A reducer that died just after connect is a reducer that died during traffic.
      require(expect == "same", failed.what());
      rank.say(std::string("traffic: ") + failed.what());
    }
    rank.barrier(name + " before close");
    close_in_time(open, plugin);
  }
}

void play_until_error(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "until error");
  open.traffic->learn_order();
  try {
    for (uint64_t seed = 1;; ++seed) {
      open.traffic->run({{kFloat32, kSum, 2u << 20, 2, 128u << 10, seed}});
      if (seed == 1) {
        rank.barrier("first done");
        if (rank.index() == 0) rank.say("running");
      }
    }
  } catch (const CallFailed& failed) {
    rank.say(failed.what());
  }
  // Those that are left.
  const int dead = rank.options().dies;
  const int place = rank.index() - (dead >= 0 && rank.index() > dead ? 1 : 0);
  (void)rank.bootstrap().all_gather("all have an error", place, rank.count() - (dead >= 0 ? 1 : 0), {});
  close_in_time(open, plugin);
}

void play_late(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::Want::kCollNet);
  Open open = open_communicator(rank, plugin, "late");
  open.traffic->learn_order();
  // Nothing of the plugin's is called meanwhile on the rank that is late.
  open.traffic->before_first = [&rank] {
    if (rank.index() != rank.options().late_rank) return;
    rank.say("late");
    come_late(rank.options().late_ms);
  };
  open.traffic->run({kSome, {kBfloat16, kSum, 300'000, 2, 32u << 10, 5}});
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
