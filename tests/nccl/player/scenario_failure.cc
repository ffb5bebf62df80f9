#include <future>
#include <thread>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

// The limit for a teardown. NCCL's destroy waits for it.
constexpr auto kCloseLimit = std::chrono::seconds(15);

// The time in which the plugin must log that it waits.
constexpr auto kLogTimeout = std::chrono::seconds(20);

void close_within_limit(OpenCommunicator& open, Plugin& plugin) {
  const auto begin = Clock::now();
  open.close(plugin);
  require(Clock::now() - begin < kCloseLimit,
          "close took " + std::to_string(milliseconds_since(begin)) + " ms");
}

// The delay is the subject of the test and cannot be replaced by an event (--late-ms): a rank connects just
// before or after the join deadline of the others, or computes before its first request.
void delay(int late_ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
}

constexpr Operation kExampleOperation{kFloat32, kSum, 4u << 20, 2, 64u << 10, 3};

}  // namespace

void run_abort(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "abort " + std::to_string(round);
    OpenCommunicator open = open_communicator(rank, plugin, name, {2, 1u << 20});
    open.traffic->find_fold_order();
    if (round % 2 == 1) open.traffic->run({{kFloat16, kSum, 200'000, 2, 32u << 10, 9}});
    // A rank that closes with open requests ends the session for all, also for a rank that waits for its last
    // result.
    rank.barrier(name + " starts");
    // Rank 0 posts fewer requests than the others, so some cannot finish. The ranks close at once, or when
    // all have posted.
    const int open_requests = rank.index() == 0 ? round % kSteps : kSteps;
    try {
      open.traffic->leave_open({kFloat32, kSum, 1u << 20, 2, 64u << 10, 4}, open_requests);
    } catch (const CallFailed&) {
      // Another rank has closed already.
      require(round % 3 == 0, "an error although no rank has closed");
    }
    if (round % 3 != 0) rank.barrier(name + " posted");
    close_within_limit(open, plugin);
  }
  OpenCommunicator again = open_communicator(rank, plugin, "after aborts");
  again.traffic->find_fold_order();
  again.traffic->run({kExampleOperation});
  rank.barrier("before close");
  again.close(plugin);
}

void run_abort_one(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "abort one", {2, 1u << 20});
  open.traffic->find_fold_order();
  rank.barrier("fold order known");
  if (rank.index() == 0) {
    open.traffic->leave_open({kFloat32, kSum, 1u << 20, 2, 64u << 10, 3}, 2);
    (void)rank.bootstrap().all_gather("left open", 0, 2, {});
  } else {
    // None of rank 0's requests may be done when rank 0 tests them.
    if (rank.index() == 1) (void)rank.bootstrap().all_gather("left open", 1, 2, {});
    const auto begin = Clock::now();
    try {
      open.traffic->run({{kFloat32, kSum, 1u << 20, 2, 64u << 10, 3}});
      throw Failure("an allreduce finished although a rank did not participate");
    } catch (const CallFailed& failed) {
      rank.print(std::string(failed.what()) + " after " + std::to_string(milliseconds_since(begin)) + " ms");
    }
  }
  close_within_limit(open, plugin);
  rank.barrier("closed");
}

void run_connect(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  const std::string& expect = rank.options().expect;
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "connect " + std::to_string(round);
    const Contexts contexts = plugin.init(hash_comm_id(name));
    OpenCommunicator open;
    open.contexts = contexts;
    open.communicator = std::make_unique<Communicator>(rank, plugin.collnet(), contexts.collnet,
                                                       all_ranks(rank, name), Geometry{2, 1u << 20});
    const bool is_late = rank.index() == rank.options().late_rank;
    const std::string& late_until = rank.options().late_until;
    auto begin = Clock::now();
    open.communicator->before_connect = [&] {
      if (rank.index() == 0) rank.print("connecting");
      if (is_late) delay(rank.options().late_ms);
      if (is_late && !late_until.empty()) rank.barrier(name + " late");
      begin = Clock::now();
    };
    std::future<void> waiting;
    if (!is_late && late_until == "waiting") {
      waiting = std::async(std::launch::async, [&] {
        require(wait_for_log("waiting up to", Clock::now() + kLogTimeout),
                "the plugin did not log that it waits");
        rank.barrier(name + " late");
      });
    }
    const bool is_absent = rank.index() == rank.options().absent_rank;
    if (is_absent) open.communicator->only_listen(rank.options().close_listener);
    const bool connected = !is_absent && open.communicator->connect() == kSuccess;
    const long elapsed_ms = milliseconds_since(begin);
    if (waiting.valid()) waiting.get();
    if (!is_late && late_until == "answered") rank.barrier(name + " late");

    const bool reported = connected != (rank.index() == rank.options().flipped_rank);
    const Block own(1, reported ? std::byte{1} : std::byte{0});
    int successes = 0;
    for (const Block& answer :
         rank.bootstrap().all_gather(name + " answers", rank.index(), rank.count(), own)) {
      successes += answer[0] == std::byte{1} ? 1 : 0;
    }
    rank.print(std::string(connected ? "connected" : "refused") + " after " + std::to_string(elapsed_ms) +
               " ms");
    // The result must be the same on all ranks; with an absent rank, all must fail.
    require(successes == 0 || successes == rank.count(),
            "connect succeeded on " + std::to_string(successes) + " ranks only");
    require(expect == "same" || connected == (expect == "ok"), "expected result of connect: " + expect);
    if (!connected) {
      plugin.finalize(contexts);
      continue;
    }
    open.communicator->register_region();
    open.traffic = std::make_unique<Traffic>(*open.communicator);
    try {
      open.traffic->find_fold_order();
      open.traffic->run({{kFloat32, kSum, 1u << 20, 2, 32u << 10, 7}});
      rank.print("traffic done");
    } catch (const CallFailed& failed) {
      // A reducer that dies just after connect causes an error during traffic.
      require(expect == "same", failed.what());
      rank.print(std::string("traffic: ") + failed.what());
    }
    rank.barrier(name + " before close");
    close_within_limit(open, plugin);
  }
}

void run_until_error(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "until error");
  open.traffic->find_fold_order();
  try {
    for (uint64_t seed = 1;; ++seed) {
      open.traffic->run({{kFloat32, kSum, 2u << 20, 2, 128u << 10, seed}});
      if (seed == 1) {
        rank.barrier("first done");
        if (rank.index() == 0) rank.print("running");
      }
    }
  } catch (const CallFailed& failed) {
    rank.print(failed.what());
  }
  // The killed rank does not take part.
  const int dead = rank.options().killed_rank;
  const int place = rank.index() - (dead >= 0 && rank.index() > dead ? 1 : 0);
  (void)rank.bootstrap().all_gather("all have an error", place, rank.count() - (dead >= 0 ? 1 : 0), {});
  close_within_limit(open, plugin);
}

void run_late(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "late");
  open.traffic->find_fold_order();
  // During the delay, the late rank calls no function of the plugin.
  open.traffic->before_first = [&rank] {
    if (rank.index() != rank.options().late_rank) return;
    rank.print("late");
    delay(rank.options().late_ms);
  };
  open.traffic->run({kExampleOperation, {kBfloat16, kSum, 300'000, 2, 32u << 10, 5}});
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
