// ArrivalList under several threads that add and one that takes.
#include "reducer/fair/arrival_list.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

namespace sluice::reducer {
namespace {

struct Session : ArrivalList::Entry {
  std::atomic<uint64_t> added{0};
  uint64_t seen = 0;   // of `added` when it was taken last
  bool waits = false;  // for its next arrival
};

TEST(ArrivalList, LosesNoSessionAndHoldsEachOnce) {
  constexpr uint64_t kRounds = 20'000;
  ArrivalList list;
  std::array<Session, 8> sessions;
  for (Session& s : sessions) s.waits = true;
  std::atomic<int> running{4};
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 4; ++lane) {
    lanes.emplace_back([&] {
      for (uint64_t i = 0; i < kRounds; ++i) {
        Session& s = sessions[i % sessions.size()];
        s.added.fetch_add(1, std::memory_order_relaxed);
        list.add(s);
      }
      running.fetch_sub(1);
    });
  }
  bool last = false;
  while (!last) {
    last = running.load() == 0;
    list.take_all([](ArrivalList::Entry& entry) {
      auto& s = static_cast<Session&>(entry);
      EXPECT_TRUE(s.waits) << "taken twice";
      s.waits = false;
    });
    for (Session& s : sessions) {
      if (s.waits) continue;
      s.waits = true;
      (void)s.has_arrived.exchange(false);
      s.seen = s.added.load();
    }
  }
  for (std::thread& lane : lanes) lane.join();
  for (const Session& s : sessions) EXPECT_EQ(s.seen, 4 * kRounds / sessions.size());
}

}  // namespace
}  // namespace sluice::reducer
