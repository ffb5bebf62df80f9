#include <sched.h>

#include <cstring>
#include <vector>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/model.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

constexpr size_t kRequests = 1000, kElements = 512, kBytes = kElements * 4;

struct Pending {
  size_t index;
  void* request;
};

uint64_t seed_of(size_t index, int rank) {
  return index * 100 + static_cast<uint64_t>(rank);
}

void verify(const Communicator& communicator, size_t index, const std::byte* received) {
  std::vector<std::vector<std::byte>> contributions(static_cast<size_t>(communicator.group().ranks),
                                                    std::vector<std::byte>(kBytes));
  std::vector<const std::byte*> in_order;
  for (size_t rank = 0; rank < contributions.size(); ++rank) {
    fill(kUint32, seed_of(index, static_cast<int>(rank)), 0, kElements, contributions[rank].data());
    in_order.push_back(contributions[rank].data());
  }
  std::vector<std::byte> expected(kBytes);
  reduce(kUint32, kSum, in_order, kElements, expected.data());
  require(std::memcmp(expected.data(), received, kBytes) == 0,
          "request " + std::to_string(index) + " has a wrong sum");
}

}  // namespace

// Posts more requests than NCCL has open, until *request is null. That is not an error: the same request is
// posted again later.
void run_flood(Rank& rank) {
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "flood");
  Communicator& communicator = *open.communicator;
  std::byte* const send = communicator.region();
  std::byte* const receive = send + communicator.geometry().region_bytes() / 2;
  uint64_t retries = 0;
  communicator.progress().run([&] {
    rank.step("flood");
    std::vector<Pending> pending;
    size_t next = 0;
    while (next < kRequests || !pending.empty()) {
      // Posts as many requests as the plugin accepts, then tests all.
      for (; next < kRequests; ++next) {
        fill(kUint32, seed_of(next, communicator.group().place), 0, kElements, send + next * kBytes);
        void* request = nullptr;
        const Result result = plugin.collnet().iallreduce(
            communicator.comm(), send + next * kBytes, receive + next * kBytes, kElements, kUint32, kSum,
            communicator.send_mhandle(), communicator.receive_mhandle(), &request);
        require_success(result, "iallreduce");
        if (request == nullptr) break;
        pending.push_back({next, request});
      }
      if (next < kRequests) ++retries;
      // Newest first: requests may be tested in any order.
      for (size_t at = pending.size(); at-- > 0;) {
        int done = -1;
        require_success(plugin.collnet().test(pending[at].request, &done, nullptr), "test");
        if (done == 0) continue;
        verify(communicator, pending[at].index, receive + pending[at].index * kBytes);
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(at));
      }
      if (rank.bootstrap().is_aborted()) throw Failure("another rank aborted");
      sched_yield();
    }
  });
  rank.print("retries " + std::to_string(retries));
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
