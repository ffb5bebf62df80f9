#include <signal.h>
#include <unistd.h>

#include <future>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/net_link.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"
#include "tests/nccl/player/worker.h"

namespace player {
namespace {

constexpr auto kErrorTimeout = std::chrono::seconds(20);
// The loss of a killed process is detected at once, because its connections close.
constexpr auto kKilledLimit = std::chrono::seconds(15);

std::vector<size_t> odd_sizes() {
  return {1, 2,     7,     64,     0,       511, 4095,    4096,    4097, 0,
          0, 65535, 65537, 131072, 1048579, 3,   8388607, 8388608, 1,    524289};
}

void poll_failed(Plugin& plugin, void* request) {
  for (int poll = 0, done = 0; poll < kPollsOfFailedRequest; ++poll)
    require(plugin.net().test(request, &done, nullptr) != kSuccess, "a failed request succeeded later");
}

// Tests `request` until it is done or fails, and goes on testing a failed one. Returns whether it failed.
// Throws Failure at a timeout.
bool request_fails(Rank& rank, Plugin& plugin, void* request, const std::string& what) {
  const auto deadline = Clock::now() + kErrorTimeout;
  for (int done = 0;;) {
    if (plugin.net().test(request, &done, nullptr) != kSuccess) {
      poll_failed(plugin, request);
      return true;
    }
    if (done == 1) return false;
    require(Clock::now() < deadline, what + ": neither done nor failed before the timeout");
    rank.yield();
  }
}

struct Posted {
  std::vector<std::byte> buffer = std::vector<std::byte>(1u << 20);
  void* mhandle = nullptr;
  void* request = nullptr;
};

// Repeats the post until the plugin returns a request.
void post(Rank& rank, Plugin& plugin, void* comm, bool receives, Posted& posted) {
  require_success(plugin.net().reg_mr(comm, posted.buffer.data(), posted.buffer.size(), &posted.mhandle),
                  "net regMr");
  const auto deadline = Clock::now() + kErrorTimeout;
  while (posted.request == nullptr) {
    const size_t bytes = posted.buffer.size();
    const Result result =
        receives ? plugin.net().irecv(comm, posted.buffer.data(), bytes, 1, posted.mhandle, &posted.request)
                 : plugin.net().isend(comm, posted.buffer.data(), bytes, 1, posted.mhandle, &posted.request);
    require_success(result, receives ? "irecv" : "isend");
    require(Clock::now() < deadline, "no request before the timeout");
    rank.yield();
  }
}

}  // namespace

void run_net_ring(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
  const Contexts contexts = plugin.init(hash_comm_id("ring"));
  Worker service, progress;
  NetLink link;
  service.run([&] { link = connect_link(rank, plugin, contexts, 1, "ring"); });
  const auto run = [&](const char* step, const Flow& flow) {
    rank.step(std::string("ring, ") + step);
    progress.run([&] { run_traffic(rank, plugin, link, 1, flow); });
  };
  run("odd sizes", {odd_sizes(), 8, 1, false});
  run("one at a time", {odd_sizes(), 1, 2, false});
  run("only empty messages", {std::vector<size_t>(200, 0), kNetRequests, 3, false});
  run("32 in flight", {std::vector<size_t>(320, 10'001), kNetRequests, 4, false});
  run("32 large messages in flight", {std::vector<size_t>(64, 262'144), kNetRequests, 5, false});
  run("the sender closes early", {std::vector<size_t>(16, 1'000'001), 8, 6, true});
  service.run([&] { close_link(plugin, link); });
  plugin.finalize(contexts);
}

void run_net_pairs(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
  const Contexts contexts = plugin.init(hash_comm_id("pairs"));
  std::vector<NetLink> links;
  Worker service;
  for (int distance = 1; distance < rank.count(); ++distance) {
    service.run([&] {
      links.push_back(connect_link(rank, plugin, contexts, distance, "distance " + std::to_string(distance)));
    });
  }
  std::vector<std::future<void>> running;
  for (int distance = 1; distance < rank.count(); ++distance) {
    running.push_back(std::async(std::launch::async, [&, distance] {
      const Flow flow{odd_sizes(), 8, static_cast<uint64_t>(distance), false};
      run_traffic(rank, plugin, links[static_cast<size_t>(distance - 1)], distance, flow);
    }));
  }
  for (std::future<void>& one : running) one.wait();
  for (std::future<void>& one : running) one.get();
  for (NetLink& link : links) close_link(plugin, link);
  plugin.finalize(contexts);
}

void run_net_close(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
  const Contexts contexts = plugin.init(hash_comm_id("close"));
  // Even ranks close with requests open. Odd ranks wait for the results of theirs.
  for (int round = 0; round < rank.options().rounds; ++round) {
    const std::string name = "close " + std::to_string(round);
    NetLink link = connect_link(rank, plugin, contexts, 1, name);
    run_traffic(rank, plugin, link, 1, {{1, 100'000}, 2, 1, false});
    std::vector<Posted> receives(2);
    Posted send;
    const bool closes = rank.index() % 2 == 0;
    for (Posted& one : receives) post(rank, plugin, link.receive_comm, true, one);
    rank.step(name + ", half posted");
    rank.barrier(name + " receives posted");
    if (!closes && rank.count() % 2 == 0) {
      post(rank, plugin, link.send_comm, false, send);
      // Its receiver closes: the send fails, or was done before.
      rank.step(name + ", waits for the send");
      rank.barrier(name + " posted");
      (void)request_fails(rank, plugin, send.request, "isend to a peer that closes");
      bool failed = false;
      for (Posted& one : receives)
        failed = request_fails(rank, plugin, one.request, "irecv from a peer that closed") || failed;
      require(failed, "no receive failed although the peer sent nothing and closed");
    } else {
      rank.barrier(name + " posted");
    }
    close_link(plugin, link);
    rank.barrier(name + " closed");
  }
  NetLink link = connect_link(rank, plugin, contexts, 1, "after closes");
  run_traffic(rank, plugin, link, 1, {odd_sizes(), 8, 2, false});
  close_link(plugin, link);
  plugin.finalize(contexts);
}

// One rank is killed with open receives and while a message is sent to it. Both its neighbours must get an
// error.
void run_net_killed(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kIfOffered);
  const Contexts contexts = plugin.init(hash_comm_id("killed"));
  NetLink link = connect_link(rank, plugin, contexts, 1, "killed");
  run_traffic(rank, plugin, link, 1, {{1, 100'000}, 2, 1, false});
  const int killed_rank = rank.options().killed_rank;
  const bool sends_to_killed = (rank.index() + 1) % rank.count() == killed_rank;
  const bool receives_from_killed = rank.index() == (killed_rank + 1) % rank.count();
  std::vector<Posted> receives(2);
  Posted send;
  for (Posted& one : receives) post(rank, plugin, link.receive_comm, true, one);
  rank.barrier("receives posted");
  if (sends_to_killed) post(rank, plugin, link.send_comm, false, send);
  rank.barrier("all posted");
  if (rank.index() == killed_rank) kill(getpid(), SIGKILL);
  const auto begin = Clock::now();
  if (receives_from_killed) {
    for (Posted& one : receives) {
      require(request_fails(rank, plugin, one.request, "irecv from a rank that was killed"),
              "a receive from a killed rank succeeded");
    }
  }
  if (sends_to_killed) (void)request_fails(rank, plugin, send.request, "isend to a rank that was killed");
  require(Clock::now() - begin < kKilledLimit, "the errors were reported too late");
  const auto closing = Clock::now();
  close_link(plugin, link);
  require(Clock::now() - closing < kKilledLimit, "close took too long");
  plugin.finalize(contexts);
}

}  // namespace player
