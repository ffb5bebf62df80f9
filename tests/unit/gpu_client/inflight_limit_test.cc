// InflightLimit with simulated networks, in which the speed of results depends on the limit.
#include "gpu_client/engine/data_path/inflight_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "gpu_client/local/rail_limit.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kLanes = 4;
constexpr uint32_t kMost = 64;

class SimulatedNetwork {
 public:
  // `cost` returns the nanoseconds per result at a limit.
  explicit SimulatedNetwork(std::function<double(uint32_t)> cost) : cost_(std::move(cost)) {}
  SimulatedNetwork(const SimulatedNetwork&) = delete;

  // Runs one operation of `chunks` chunks after a pause.
  void operation(uint64_t chunks, bool limited = true) {
    now_ += 1e9;
    for (uint64_t i = 0; i < chunks; ++i) {
      if (limited) inflight_limit.note_limited();
      now_ += cost_(inflight_limit.limit());
      ++results_[inflight_limit.limit() == expected_];
      inflight_limit.result(i % kLanes == 0, losses, 1000, static_cast<Nanos>(now_));
      if (i % kLanes == 0) losses = false;
    }
    inflight_limit.idle(static_cast<Nanos>(now_));
  }
  void operations(int count, uint64_t chunks = 4096) {
    while (count-- > 0) operation(chunks);
  }
  uint32_t limit_after(int count) {
    operations(count);
    return inflight_limit.limit();
  }
  // The share of results during `run` that arrived at another limit than `limit`.
  template <typename Run>
  double share_at_other_limits(uint32_t limit, Run run) {
    expected_ = limit;
    results_[0] = results_[1] = 0;
    run();
    return static_cast<double>(results_[0]) / static_cast<double>(results_[0] + results_[1]);
  }

  InflightLimit inflight_limit{kMost};
  bool losses = false;  // the next result of the first connection has the flag for losses

 private:
  std::function<double(uint32_t)> cost_;
  double now_ = 1e9;
  uint32_t expected_ = 0;
  uint64_t results_[2] = {};  // at another limit, at the expected limit
};

// The speed grows with the limit up to `enough` chunks and then stays constant.
class SaturatingNetwork final : public SimulatedNetwork {
 public:
  explicit SaturatingNetwork(uint32_t chunks)
      : SimulatedNetwork([this](uint32_t limit) { return 1e6 / std::min(limit, enough); }), enough(chunks) {}

  uint32_t enough;
};

TEST(InflightLimit, StartsWithTwoOrTheMaximum) {
  EXPECT_EQ(InflightLimit(kMost).limit(), 2U);
  EXPECT_EQ(InflightLimit(1).limit(), 1U);
}

TEST(InflightLimit, RisesUntilMoreGainsNothing) {
  SaturatingNetwork network(16);
  EXPECT_EQ(network.limit_after(12), 16U);
  EXPECT_LT(network.share_at_other_limits(16, [&] { network.operations(400); }), 0.05);
}

TEST(InflightLimit, RisesToTheMaximum) {
  SaturatingNetwork network(kMost * 4);
  EXPECT_EQ(network.limit_after(40), kMost);
}

TEST(InflightLimit, FallsFromTheMaximum) {
  SaturatingNetwork network(kMost * 4);
  ASSERT_EQ(network.limit_after(40), kMost);
  network.enough = 8;
  EXPECT_EQ(network.limit_after(600), 8U);
}

TEST(InflightLimit, FallsToTheMinimumWhereItSuffices) {
  SaturatingNetwork network(1);
  EXPECT_EQ(network.limit_after(4), 2U);
  EXPECT_EQ(network.limit_after(100), 1U);
  EXPECT_LT(network.share_at_other_limits(1, [&] { network.operations(400); }), 0.02);
}

TEST(InflightLimit, KeepsTheRequiredLimit) {
  SaturatingNetwork network(2);
  EXPECT_EQ(network.limit_after(600), 2U);
}

// One rank gains nothing by raising its limit alone, so all ranks must raise it together.
TEST(InflightLimit, RisesOnAllRanksAtOnce) {
  InflightLimit ranks[] = {InflightLimit(kMost), InflightLimit(kMost), InflightLimit(kMost)};
  Nanos now = 0;
  for (int operation = 0; operation < 12; ++operation) {
    now += kSecond;
    for (int chunk = 0; chunk < 4096; ++chunk) {
      uint32_t least = kMost;
      for (const InflightLimit& p : ranks) least = std::min(least, p.limit());
      now += kMillisecond / std::min(least, 16U);
      for (InflightLimit& p : ranks) {
        p.note_limited();
        p.result(chunk % kLanes == 0, false, 1000, now);
      }
    }
    for (InflightLimit& p : ranks) p.idle(now);
  }
  for (const InflightLimit& p : ranks) EXPECT_EQ(p.limit(), 16U);
}

// The limit of a host's rails. Its ranks hear from a shared limit whether it stopped a chunk.
TEST(RailLimit, BeginsWithOneAndRisesOnlyWhereMoreGains) {
  const auto limit_after = [](int operations, uint32_t enough) {
    local::RailLimit rails;
    EXPECT_EQ(rails.shared().limit(), 1U);
    Nanos now = kSecond;
    for (int i = 0; i < operations; ++i) {
      now += kSecond;
      for (int piece = 0; piece < 1024; ++piece) {
        rails.shared().note_limited();
        now += kMillisecond / std::min(rails.shared().limit(), enough);
        rails.piece_ended(1000, now);
      }
      rails.idle(now);
    }
    return rails.shared().limit();
  };
  EXPECT_EQ(limit_after(40, 1), 1U);
  EXPECT_EQ(limit_after(40, 16), 16U);
}

// As long as sessions use the links together, none of them tries a higher limit.
TEST(RailLimit, MakesNoTrialsWhileAnotherIsBusy) {
  local::RailLimit one, other;
  for (local::RailLimit* rails : {&one, &other}) rails->begin(1000, 0);
  EXPECT_EQ(one.shared().limit(), 2U);
  Nanos now = kSecond;
  const auto operations = [&](int count, bool with_other) {
    for (int i = 0; i < count; ++i) {
      now += kSecond;
      for (int piece = 0; piece < 1024; ++piece) {
        now += kMillisecond / one.shared().limit();
        for (local::RailLimit* rails : {&one, &other}) {
          if (rails == &other && !with_other) continue;
          rails->shared().note_limited();
          rails->piece_ended(1000, now);
          if (with_other) {
            EXPECT_EQ(rails->shared().limit(), 2U);
          }
        }
      }
      one.idle(now);
      other.idle(now);
    }
  };
  operations(40, true);
  operations(400, false);
  EXPECT_GT(one.shared().limit(), 2U) << "the rests between trials are long by now";
}

// Pieces of 1 MB take as long as 128 KiB in flight on a link of 25 MB/s: 512 KiB would wait for 20 ms. So
// they do on a path that alone takes 40 ms for a round trip, where more in flight gains speed.
TEST(RailLimit, TriesNoMoreBytesInFlightThanALinkCarriesIn10MsAndTheRoundTrip) {
  const auto limit_after = [](Nanos piece_takes, Nanos round_trip) {
    local::RailLimit rails;
    rails.begin(wire::kBytesAtOnce, round_trip);
    Nanos now = kSecond;
    uint32_t most = 0;
    for (int piece = 0; piece < 4096; ++piece) {
      rails.shared().note_limited();
      now += piece_takes / rails.shared().limit();
      rails.piece_ended(1'000'000, now);
      most = std::max(most, rails.shared().limit());
    }
    return most;
  };
  EXPECT_EQ(limit_after(80 * kMillisecond, 0), 2U);
  EXPECT_GT(limit_after(80 * kMillisecond, 40 * kMillisecond), 2U);
  EXPECT_GT(limit_after(kMillisecond, 0), 8U);
  local::RailLimit large;
  large.begin(2 * wire::kBytesAtOnce, 0);
  EXPECT_EQ(large.shared().limit(), 1U);
}

// A queue overflows from 8 chunks on, and every result then takes a hundred times as long. Such a trial
// must end early.
TEST(InflightLimit, EndsATrialWithMuchLowerSpeedEarly) {
  SimulatedNetwork network([](uint32_t limit) { return limit >= 8 ? 1e8 : 1e6 / limit; });
  EXPECT_EQ(network.limit_after(4), 4U);
  EXPECT_LT(network.share_at_other_limits(4, [&] { network.operations(100); }), 0.01);
}

TEST(InflightLimit, FallsWhenLessSufficesLater) {
  SaturatingNetwork network(32);
  EXPECT_EQ(network.limit_after(20), 32U);
  network.enough = 2;
  EXPECT_EQ(network.limit_after(600), 2U);
}

TEST(InflightLimit, RisesWhenMoreGainsLater) {
  SaturatingNetwork network(2);
  EXPECT_EQ(network.limit_after(50), 2U);
  network.enough = 32;
  EXPECT_EQ(network.limit_after(3000), 32U);
}

// Half the limit costs a tenth of the speed. That is only acceptable when packets are lost.
TEST(InflightLimit, HalvesOnLossesIfTheSpeedStaysTolerable) {
  SimulatedNetwork network([](uint32_t limit) {
    return limit >= 16 ? 0.9e5 : limit == 8 ? 1e5 : 1e6 / limit;
  });
  ASSERT_EQ(network.limit_after(12), 16U);
  network.losses = true;
  EXPECT_EQ(network.limit_after(2), 8U);
}

TEST(InflightLimit, IgnoresLossesWhereHalfIsMuchSlower) {
  SaturatingNetwork network(16);
  ASSERT_EQ(network.limit_after(12), 16U);
  const double other = network.share_at_other_limits(16, [&] {
    for (int i = 0; i < 100; ++i) {
      network.losses = true;
      network.operation(4096);
    }
  });
  EXPECT_EQ(network.inflight_limit.limit(), 16U);
  EXPECT_LT(other, 0.1);
}

// Losses do not prevent trials at twice the limit.
TEST(InflightLimit, RisesDespiteLosses) {
  SaturatingNetwork network(2);
  network.operations(50);
  network.enough = 32;
  for (int i = 0; i < 3000; ++i) {
    network.losses = i % 10 == 0;
    network.operation(4096);
  }
  EXPECT_EQ(network.inflight_limit.limit(), 32U);
}

// A trial may cost throughput, and the session has just lost time.
TEST(InflightLimit, RestsAfterARestart) {
  SaturatingNetwork network(16);
  EXPECT_EQ(network.limit_after(30), 16U);
  network.enough = 64;
  network.inflight_limit.restart();
  const double others = network.share_at_other_limits(
      16, [&] { network.operation(kLanes * (InflightLimit::kRestartRest - 1)); });
  EXPECT_EQ(others, 0);
  EXPECT_EQ(network.limit_after(3), 64U);
}

TEST(InflightLimit, IgnoresOperationsThatTheLimitDoesNotStop) {
  SaturatingNetwork network(16);
  for (int i = 0; i < 1000; ++i) network.operation(4, false);
  EXPECT_EQ(network.inflight_limit.limit(), 2U);
  EXPECT_EQ(network.limit_after(12), 16U);
}

// During the pause before the first result of an operation some rank computes.
TEST(InflightLimit, DoesNotCountTheTimeBeforeTheFirstResult) {
  SaturatingNetwork network(16);
  network.operations(30, 512);  // 1 s of pause before a few ms of results
  EXPECT_EQ(network.inflight_limit.limit(), 16U);
}

}  // namespace
}  // namespace sluice::engine
