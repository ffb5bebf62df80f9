#include "gpu_client/engine/membership/link_meter.h"

#include <gtest/gtest.h>

namespace sluice::engine {
namespace {

constexpr uint64_t kRate = 100'000'000;
constexpr uint32_t kRanks = 4;
constexpr auto kIntervals = static_cast<int>(LinkMeter::kIntervals);

// What a rank does during one interval.
struct Load {
  double busy = 1;                 // part of the interval with open operations
  double carried = kRate;          // bits/s of the link while busy
  double limited = 0.9;            // part of the busy time in which the network limits each connection
  double other_limited = 0.9;      // the same of the last connection
  double own_part = 1.0 / kRanks;  // of the waits
  double results = 1;              // speed of operations
};

// Feeds a meter with samples of a load, as Recovery does.
class MeterTestBed {
 public:
  MeterTestBed() { sample_.connections.resize(3); }

  // Runs for this many intervals. Returns the first change, which takes effect; none: 0.
  uint64_t run(const Load& load, int intervals) {
    for (int i = 0; i < intervals; ++i) {
      if (const auto change = meter_.add(sample_, rate, has_share)) {
        ++changes;
        meter_.restart();
        rate = *change;
        return rate;
      }
      advance(load);
    }
    return 0;
  }
  // Intervals until the rate changes; 0: never within `most`.
  int intervals_to_change(const Load& load, int most) {
    for (int i = 1; i <= most; ++i) {
      if (run(load, 1) > 0) return i;
    }
    return 0;
  }
  LinkMeter::Sample& sample() { return sample_; }

  uint64_t rate = kRate;
  bool has_share = true;
  int changes = 0;

 private:
  void advance(const Load& load) {
    const auto busy = static_cast<Nanos>(load.busy * static_cast<double>(LinkMeter::kInterval));
    const double seconds = static_cast<double>(busy) / static_cast<double>(kSecond);
    const auto bytes = static_cast<uint64_t>(load.carried / 8 * seconds);
    sample_.busy += busy;
    sample_.bytes += bytes;
    sample_.results += static_cast<uint64_t>(1e6 * load.results * seconds);
    for (LinkMeter::Sample::Connection& c : sample_.connections) {
      const bool is_last = &c == &sample_.connections.back();
      c.bytes += bytes / 3;
      c.network_limited +=
          static_cast<Nanos>((is_last ? load.other_limited : load.limited) * static_cast<double>(busy));
    }
    sample_.own_wait_us += static_cast<uint64_t>(1000 * load.own_part);
    sample_.all_wait_us += 1000;
  }

  LinkMeter meter_{kRanks, kRate};
  LinkMeter::Sample sample_;
};

constexpr Load kSlowLink{.carried = 0.5 * kRate, .own_part = 0.7, .results = 0.5};
// After the rate was lowered; then the link is fast again.
constexpr Load kRelieved{.carried = 0.5 * kRate, .own_part = 0.95, .results = 0.75};
constexpr Load kSpareLink{.carried = 0.6 * kRate, .limited = 0.4, .own_part = 0.05, .results = 0.9};

TEST(LinkMeter, LowersTheRateOfASlowLink) {
  MeterTestBed t;
  EXPECT_EQ(t.run({}, 20), 0u);
  EXPECT_EQ(t.run(kSlowLink, kIntervals), 0u);
  EXPECT_EQ(t.run(kSlowLink, 1), kRate / 2);
  EXPECT_EQ(t.run(kRelieved, 200), 0u) << "as fast as the view says";
}

TEST(LinkMeter, LowersAtMostByHalfAtOnce) {
  MeterTestBed t;
  t.run({}, 20);
  Load slow = kSlowLink;
  slow.carried = 0.1 * kRate;
  slow.results = 0.1;
  EXPECT_EQ(t.run(slow, 10), kRate / 2);
  slow.results = 0.2;
  EXPECT_EQ(t.run(slow, 20), kRate / 4);
  t.has_share = false;
  slow.results = 0.3;
  EXPECT_EQ(t.run(slow, 60), 0u) << "a rank without a share has nothing to lose";
}

TEST(LinkMeter, KeepsTheRateWithoutASlowLink) {
  const auto stays = [](const Load& load, const char* why) {
    MeterTestBed t;
    t.run({}, 20);
    EXPECT_EQ(t.run(load, 200), 0u) << why;
  };
  stays({.carried = 0.5 * kRate}, "all ranks wait alike: the whole network is slow");
  stays({.carried = 0.5 * kRate, .limited = 0.1, .other_limited = 0.1, .own_part = 1}, "the process is late");
  stays({.carried = 0.5 * kRate, .limited = 0.1, .own_part = 0.5}, "another rank's link is slow");
  stays({.carried = 0.85 * kRate, .own_part = 0.9}, "within the tolerance");
  stays({.busy = 0, .carried = 0, .own_part = 0}, "the session is idle");
}

TEST(LinkMeter, KeepsTheRateOfALinkThatNeverCarriedMore) {
  MeterTestBed t;
  EXPECT_EQ(t.run(kSlowLink, 200), 0u) << "the view's rates may be too high for all ranks";
}

TEST(LinkMeter, IgnoresConnectionsThatCarryLittle) {
  MeterTestBed t;
  t.sample().connections.push_back({});  // to a reducer with a small share, so the network hardly limits it
  t.run({}, 20);
  EXPECT_EQ(t.run(kSlowLink, 10), kRate / 2);
}

TEST(LinkMeter, NeedsSlowIntervalsInARow) {
  MeterTestBed t;
  t.run({}, 20);
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(t.run(kSlowLink, kIntervals - 1), 0u);
    EXPECT_EQ(t.run({}, 1), 0u);
  }
}

TEST(LinkMeter, CountsBusyTimeOnly) {
  MeterTestBed t;
  t.run({}, 20);
  Load rare = kSlowLink;
  rare.busy = 0.1;
  EXPECT_EQ(t.run(rare, 4 * kIntervals), 0u);
  EXPECT_EQ(t.run(rare, 2 * kIntervals), kRate / 2);
}

// A whole network became slow, but the others seem to wait for this rank.
TEST(LinkMeter, RestoresARateThatDidNotHelpAndWaitsTwiceAsLong) {
  MeterTestBed t;
  t.run({}, 20);
  Load vain = kSlowLink;
  int before = 0;
  for (int i = 0; i < 5; ++i) {
    const int intervals = t.intervals_to_change(vain, 1000);
    EXPECT_EQ(t.rate, kRate / 2);
    if (i > 1) {
      EXPECT_GE(intervals, 2 * before - kIntervals) << i;
    }
    before = intervals;
    EXPECT_EQ(t.run(vain, 10), kRate) << i;
  }
}

TEST(LinkMeter, RaisesALoweredRateUpToTheFirst) {
  MeterTestBed t;
  t.run({}, 20);
  Load slow = kSlowLink;
  slow.carried = 0.3 * kRate;
  EXPECT_EQ(t.run(slow, 10), kRate / 2);
  slow.results = 0.6;
  EXPECT_EQ(t.run(slow, 20), 30 * kRate / 100);
  slow.results = 0.7;
  EXPECT_EQ(t.run(slow, 10), 0u);
  EXPECT_EQ(t.run(kSpareLink, 10), 60 * kRate / 100);
  EXPECT_EQ(t.run(kSpareLink, 10), kRate);
  EXPECT_EQ(t.run(kSpareLink, 100), 0u);
}

TEST(LinkMeter, RaisesTheRateOfALinkThatCarriesMore) {
  MeterTestBed t;
  t.run({}, 20);
  EXPECT_EQ(t.run(kSlowLink, 10), kRate / 2);
  EXPECT_EQ(t.run(kRelieved, 10), 0u);
  Load more = kRelieved;
  more.carried = 0.6 * kRate;
  EXPECT_EQ(t.run(more, 10), kRate);
}

TEST(LinkMeter, WaitsTwiceAsLongAfterEachVainRaise) {
  MeterTestBed t;
  t.run({}, 20);
  EXPECT_EQ(t.run(kSlowLink, 10), kRate / 2);
  Load tempting = kRelieved;  // seems to have capacity to spare
  tempting.limited = tempting.other_limited = 0.3;
  tempting.own_part = 0.1;
  int before = 0;
  for (int i = 0; i < 5; ++i) {
    const int intervals = t.intervals_to_change(tempting, 1000);
    EXPECT_EQ(t.rate, kRate);
    if (i > 1) {
      EXPECT_GE(intervals, 2 * before - kIntervals) << i;
    }
    before = intervals;
    EXPECT_EQ(t.run(kSlowLink, 10), kRate / 2);
  }
  // A raise that lasts ends the doubling.
  EXPECT_GT(t.intervals_to_change(tempting, 1000), 30);
  EXPECT_EQ(t.run({}, 40), 0u);
  EXPECT_EQ(t.run(kSlowLink, 10), kRate / 2);
  EXPECT_LE(t.intervals_to_change(tempting, 1000), 3 * kIntervals);
}

// Its time since it was opened is less than that of the connection before.
TEST(LinkMeter, AcceptsAConnectionThatWasOpenedAgain) {
  MeterTestBed t;
  t.run({}, 20);
  EXPECT_EQ(t.run(kSlowLink, 2), 0u);
  t.sample().connections.front().network_limited = 0;
  EXPECT_EQ(t.run(kSlowLink, 20), kRate / 2);
}

}  // namespace
}  // namespace sluice::engine
