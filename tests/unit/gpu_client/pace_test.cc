// The pace against networks of one line each: results come at a speed that depends on the limit.
#include "gpu_client/engine/pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace sluice::engine {
namespace {

constexpr uint32_t kLinks = 4;
constexpr uint32_t kMost = 64;

class Network {
 public:
  // Nanoseconds per result at a limit.
  explicit Network(std::function<double(uint32_t)> cost) : cost_(std::move(cost)) {}
  Network(const Network&) = delete;

  // One operation of so many chunks, after a pause.
  void operation(uint64_t chunks, bool held_back = true) {
    now_ += 1e9;
    for (uint64_t i = 0; i < chunks; ++i) {
      if (held_back) pace.held_back();
      now_ += cost_(pace.limit());
      ++spent_[pace.limit() == settled_];
      pace.result(i % kLinks == 0, losses, 1000, static_cast<Nanos>(now_));
      if (i % kLinks == 0) losses = false;
    }
    pace.idle(static_cast<Nanos>(now_));
  }
  void operations(int count, uint64_t chunks = 4096) {
    while (count-- > 0) operation(chunks);
  }
  uint32_t limit_after(int count) {
    operations(count);
    return pace.limit();
  }
  // Share of the results that came at another limit than `limit` during `run`.
  template <typename Run>
  double astray(uint32_t limit, Run run) {
    settled_ = limit;
    spent_[0] = spent_[1] = 0;
    run();
    return static_cast<double>(spent_[0]) / static_cast<double>(spent_[0] + spent_[1]);
  }

  Pace pace{kMost};
  bool losses = false;  // the next result tells of losses

 private:
  std::function<double(uint32_t)> cost_;
  double now_ = 1e9;
  uint32_t settled_ = 0;
  uint64_t spent_[2] = {};
};

// Speed grows with the limit up to `enough` chunks, then stays.
class SaturatingNetwork final : public Network {
 public:
  explicit SaturatingNetwork(uint32_t chunks)
      : Network([this](uint32_t limit) { return 1e6 / std::min(limit, enough); }), enough(chunks) {}

  uint32_t enough;
};

TEST(Pace, BeginsWithTwoOrTheMost) {
  EXPECT_EQ(Pace(kMost).limit(), 2U);
  EXPECT_EQ(Pace(1).limit(), 1U);
}

TEST(Pace, RisesToWhereMoreGainsNothing) {
  SaturatingNetwork network(16);
  EXPECT_EQ(network.limit_after(12), 16U);
  EXPECT_LT(network.astray(16, [&] { network.operations(400); }), 0.05);
}

TEST(Pace, RisesToTheMost) {
  SaturatingNetwork network(kMost * 4);
  EXPECT_EQ(network.limit_after(40), kMost);
}

TEST(Pace, FallsFromTheMost) {
  SaturatingNetwork network(kMost * 4);
  ASSERT_EQ(network.limit_after(40), kMost);
  network.enough = 8;
  EXPECT_EQ(network.limit_after(600), 8U);
}

TEST(Pace, FallsToTheLeastWhereItIsEnough) {
  SaturatingNetwork network(1);
  EXPECT_EQ(network.limit_after(4), 2U);
  EXPECT_EQ(network.limit_after(100), 1U);
  EXPECT_LT(network.astray(1, [&] { network.operations(400); }), 0.02);
}

TEST(Pace, KeepsWhatIsNeeded) {
  SaturatingNetwork network(2);
  EXPECT_EQ(network.limit_after(600), 2U);
}

// A rank that alone allows itself more gains nothing. So n of them rise together, or not at all.
TEST(Pace, RisesOnAllRanksAtOnce) {
  Pace ranks[] = {Pace(kMost), Pace(kMost), Pace(kMost)};
  Nanos now = 0;
  for (int operation = 0; operation < 12; ++operation) {
    now += kSecond;
    for (int chunk = 0; chunk < 4096; ++chunk) {
      uint32_t least = kMost;
      for (const Pace& p : ranks) least = std::min(least, p.limit());
      now += kMillisecond / std::min(least, 16U);
      for (Pace& p : ranks) {
        p.held_back();
        p.result(chunk % kLinks == 0, false, 1000, now);
      }
    }
    for (Pace& p : ranks) p.idle(now);
  }
  for (const Pace& p : ranks) EXPECT_EQ(p.limit(), 16U);
}

// A queue that runs over from 8 chunks on: every result then takes a hundred times as long. A trial of it has
// to end long before its rounds are through.
TEST(Pace, EndsATrialThatMakesThingsMuchWorse) {
  Network network([](uint32_t limit) { return limit >= 8 ? 1e8 : 1e6 / limit; });
  EXPECT_EQ(network.limit_after(4), 4U);
  EXPECT_LT(network.astray(4, [&] { network.operations(100); }), 0.01);
}

TEST(Pace, FallsWhenLessIsEnoughLater) {
  SaturatingNetwork network(32);
  EXPECT_EQ(network.limit_after(20), 32U);
  network.enough = 2;
  EXPECT_EQ(network.limit_after(600), 2U);
}

TEST(Pace, RisesWhenMoreGainsLater) {
  SaturatingNetwork network(2);
  EXPECT_EQ(network.limit_after(50), 2U);
  network.enough = 32;
  EXPECT_EQ(network.limit_after(3000), 32U);
}

// Half the limit costs a tenth of the speed: not worth it by itself, but it is where packets are lost.
TEST(Pace, HalvesWhenPacketsAreLostAndHalfIsTolerable) {
  Network network([](uint32_t limit) { return limit >= 16 ? 0.9e5 : limit == 8 ? 1e5 : 1e6 / limit; });
  ASSERT_EQ(network.limit_after(12), 16U);
  network.losses = true;
  EXPECT_EQ(network.limit_after(2), 8U);
}

TEST(Pace, ForgetsLossesWhereHalfIsMuchSlower) {
  SaturatingNetwork network(16);
  ASSERT_EQ(network.limit_after(12), 16U);
  const double astray = network.astray(16, [&] {
    for (int i = 0; i < 100; ++i) {
      network.losses = true;
      network.operation(4096);
    }
  });
  EXPECT_EQ(network.pace.limit(), 16U);
  EXPECT_LT(astray, 0.1);
}

// Losses alone never keep a limit down: the trials at twice as much come as they would.
TEST(Pace, RisesInSpiteOfLosses) {
  SaturatingNetwork network(2);
  network.operations(50);
  network.enough = 32;
  for (int i = 0; i < 3000; ++i) {
    network.losses = i % 10 == 0;
    network.operation(4096);
  }
  EXPECT_EQ(network.pace.limit(), 32U);
}

TEST(Pace, LearnsNothingFromOperationsThatTheLimitDoesNotHoldBack) {
  SaturatingNetwork network(16);
  for (int i = 0; i < 1000; ++i) network.operation(4, false);
  EXPECT_EQ(network.pace.limit(), 2U);
  EXPECT_EQ(network.limit_after(12), 16U);
}

// The pause before an operation's first result is a rank that computes, however long.
TEST(Pace, DoesNotCountTheTimeBeforeTheFirstResult) {
  SaturatingNetwork network(16);
  network.operations(30, 512);  // 1 s of pause before some ms of results
  EXPECT_EQ(network.pace.limit(), 16U);
}

}  // namespace
}  // namespace sluice::engine
