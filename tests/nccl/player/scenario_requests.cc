#include <cstring>
#include <vector>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/model.h"
#include "tests/nccl/player/scenarios.h"
#include "tests/nccl/player/setup.h"

namespace player {
namespace {

// Requests posts, tests and checks the requests of one rank. They are consecutive in the region and have
// distinct data.
class Requests {
 public:
  explicit Requests(Communicator& communicator) : communicator_(communicator) {}

  // Returns false if *request stayed null.
  bool post(size_t bytes) {
    std::byte* const send = communicator_.region() + used_;
    const size_t count = bytes / size_of(kUint32);
    fill(kUint32, seed(used_, communicator_.group().place), 0, count, send);
    void* request = nullptr;
    const Result result = communicator_.collnet().iallreduce(
        communicator_.comm(), send, send + communicator_.geometry().region_bytes() / 2, count, kUint32, kSum,
        communicator_.send_mhandle(), communicator_.receive_mhandle(), &request);
    require_success(result, "iallreduce");
    if (request == nullptr) return false;
    open_.push_back({used_, bytes, request});
    used_ += bytes;
    return true;
  }

  [[nodiscard]] bool any_open() const { return !open_.empty(); }

  // Tests the newest first, because requests may be tested in any order. Checks every byte of those that are
  // done.
  void test() {
    for (size_t at = open_.size(); at-- > 0;) {
      int done = -1;
      require_success(communicator_.collnet().test(open_[at].request, &done, nullptr), "test");
      if (done == 0) continue;
      verify(open_[at]);
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    communicator_.rank().yield();
  }

 private:
  struct Pending {
    size_t at, bytes;
    void* request;
  };

  static uint64_t seed(size_t at, int rank) { return at * 100 + static_cast<uint64_t>(rank); }

  void verify(const Pending& pending) const {
    const size_t count = pending.bytes / size_of(kUint32);
    std::vector<std::vector<std::byte>> contributions(static_cast<size_t>(communicator_.group().ranks),
                                                      std::vector<std::byte>(pending.bytes));
    std::vector<const std::byte*> in_order;
    for (size_t rank = 0; rank < contributions.size(); ++rank) {
      fill(kUint32, seed(pending.at, static_cast<int>(rank)), 0, count, contributions[rank].data());
      in_order.push_back(contributions[rank].data());
    }
    std::vector<std::byte> expected(pending.bytes);
    reduce(kUint32, kSum, in_order, count, expected.data());
    const std::byte* const received =
        communicator_.region() + communicator_.geometry().region_bytes() / 2 + pending.at;
    require(std::memcmp(expected.data(), received, pending.bytes) == 0,
            "a request of " + std::to_string(pending.bytes) + " bytes has a wrong sum");
  }

  Communicator& communicator_;
  size_t used_ = 0;
  std::vector<Pending> open_;
};

struct Step {
  size_t bytes;
  bool accepted;
};

}  // namespace

// Checks which requests are accepted while rank 0 posts nothing, so that none can finish, and that all finish
// once rank 0 posts. Options::bytes is the budget.
void run_budget(Rank& rank) {
  const size_t budget = rank.options().bytes;
  const std::vector<std::vector<Step>> rounds = {
      // Exactly full.
      {{budget / 4, true}, {budget / 2, true}, {budget / 2, false}, {budget / 4, true}, {512, false}},
      // Finished requests no longer count; the remaining budget is less than the request.
      {{budget / 2, true}, {budget / 2 - 512, true}, {1024, false}, {512, true}, {512, false}},
      // A request larger than the whole budget is accepted if no other is open.
      {{2 * budget, true}, {512, false}},
      {{512, true}, {2 * budget, false}},
      {{2 * budget, true}, {2 * budget, false}},
  };
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "budget");
  open.communicator->progress().run([&] {
    Requests requests(*open.communicator);
    for (size_t round = 0; round < rounds.size(); ++round) {
      const std::string name = "budget, round " + std::to_string(round);
      rank.step(name);
      if (rank.index() == 0) rank.barrier(name);
      for (const Step& step : rounds[round]) {
        if (rank.index() == 0 && !step.accepted) continue;
        require(requests.post(step.bytes) == step.accepted, name + ": a request of " +
                                                                std::to_string(step.bytes) + " bytes was " +
                                                                (step.accepted ? "not " : "") + "accepted");
      }
      if (rank.index() != 0) rank.barrier(name);
      while (requests.any_open()) requests.test();
    }
  });
  rank.barrier("before close");
  open.close(plugin);
}

// Posts more requests than NCCL has open, until *request is null. That is not an error: the same request is
// posted again later.
void run_flood(Rank& rank) {
  constexpr int kRequests = 1000;
  Plugin plugin(rank.options(), Plugin::CollNetUse::kRequired);
  OpenCommunicator open = open_communicator(rank, plugin, "flood");
  uint64_t retries = 0;
  open.communicator->progress().run([&] {
    rank.step("flood");
    Requests requests(*open.communicator);
    for (int posted = 0; posted < kRequests || requests.any_open(); requests.test()) {
      while (posted < kRequests && requests.post(2048)) ++posted;
      if (posted < kRequests) ++retries;
    }
  });
  rank.print("retries " + std::to_string(retries));
  rank.barrier("before close");
  open.close(plugin);
}

}  // namespace player
