// FairShares over a simulated link: jobs with a demand send chunks one after the other, as far as their
// meters allow. The test controls the clock.
#include "reducer/fair/fair_shares.h"

#include <gtest/gtest.h>

#include <deque>
#include <limits>

namespace sluice::reducer {
namespace {

constexpr uint64_t kChunk = 128 * kKiB;

struct Job {
  FairShares::Member member;
  std::deque<Meter> meters;
  double demand = std::numeric_limits<double>::infinity();  // bytes/s
  double ready = 0;                                         // demanded bytes that are not moved yet
  bool stalled = false;                                     // moves nothing
  [[nodiscard]] double moved() const {
    double sum = 0;
    for (const Meter& m : meters) sum += static_cast<double>(m.served());
    return sum;
  }
};

class FairSharesTest : public ::testing::Test {
 protected:
  static constexpr double kLink = 25e6;  // bytes/s

  FairAccount& account(uint32_t weight) { return accounts_.emplace_back(FairAccount{.weight = weight}); }
  Job& job(FairAccount& of, size_t lanes = 2) {
    Job& j = jobs_.emplace_back();
    for (size_t i = 0; i < lanes; ++i) j.member.meters.push_back(&j.meters.emplace_back());
    j.member.account = &of;
    j.member.chunk_bytes = kChunk;
    j.member.inflight_bytes = 32 * kChunk;
    shares_.add(j.member);
    return j;
  }
  // Bytes that each job moves within `time`.
  std::vector<double> run(Nanos time) {
    std::vector<double> before;
    for (const Job& j : jobs_) before.push_back(j.moved());
    for (const Nanos end = now_ + time; now_ < end; now_ += kMillisecond) {
      budget_ += link * 1e-3;
      if (now_ % (100 * kMillisecond) < without_cpu) continue;
      if (now_ % FairShares::kUpdateInterval == 0) shares_.update(now_);
      budget_ = std::min(budget_, link * 1e-9 * static_cast<double>(without_cpu + kMillisecond) + kChunk);
      run_link();
    }
    std::vector<double> moved;
    for (size_t i = 0; i < jobs_.size(); ++i) moved.push_back(jobs_[i].moved() - before[i]);
    return moved;
  }

  double link = kLink;
  Nanos without_cpu = 0;  // of each 100 ms; the network goes on meanwhile
  FairShares shares_;
  std::deque<Job> jobs_;

 private:
  // A millisecond of the link, which takes one chunk of each job in turn.
  void run_link() {
    for (Job& j : jobs_) j.ready = std::min(j.ready + j.demand * 1e-3, 32.0 * kChunk);
    for (size_t idle = 0; idle < jobs_.size() && budget_ >= kChunk;) {
      Job& j = jobs_[next_update_++ % jobs_.size()];
      Meter& meter = j.meters[static_cast<size_t>(j.moved() / kChunk) % j.meters.size()];
      const bool has_chunk = j.ready >= kChunk && !j.stalled;
      meter.set_held(has_chunk && !meter.may_serve());
      if (!has_chunk || !meter.may_serve()) {
        ++idle;
        continue;
      }
      idle = 0;
      meter.add(kChunk);
      j.ready -= kChunk;
      budget_ -= kChunk;
    }
  }

  std::deque<FairAccount> accounts_;
  Nanos now_ = kSecond;
  double budget_ = 0;
  size_t next_update_ = 0;
};

TEST_F(FairSharesTest, DividesTheLinkByWeight) {
  job(account(1));
  job(account(3));
  (void)run(5 * kSecond);
  const auto moved = run(30 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.15);
  EXPECT_GT(moved[0] + moved[1], 0.98 * kLink * 30);
}

TEST_F(FairSharesTest, DividesTheLinkAmongManyWeights) {
  for (const uint32_t weight : {1, 2, 5, 10}) job(account(weight));
  (void)run(5 * kSecond);
  const auto moved = run(60 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 2, 0.15);
  EXPECT_NEAR(moved[2] / moved[0], 5, 0.4);
  EXPECT_NEAR(moved[3] / moved[0], 10, 0.8);
}

TEST_F(FairSharesTest, NeverLimitsASingleSession) {
  job(account(1));
  EXPECT_GT(run(10 * kSecond)[0], 0.999 * kLink * 10);
  EXPECT_EQ(jobs_[0].member.held_time, 0);
}

TEST_F(FairSharesTest, SessionsOfOneAccountShareItsWeight) {
  FairAccount& first = account(1);
  job(first);
  job(first);
  job(account(1));
  (void)run(5 * kSecond);
  const auto moved = run(30 * kSecond);
  EXPECT_NEAR((moved[0] + moved[1]) / moved[2], 1, 0.1);
  EXPECT_NEAR(moved[0] / moved[1], 1, 0.1);
}

TEST_F(FairSharesTest, AnUnusedShareGoesToTheOtherSession) {
  job(account(1));
  job(account(100)).demand = 0.1 * kLink;  // far below its share
  (void)run(10 * kSecond);
  const auto moved = run(60 * kSecond);
  EXPECT_NEAR(moved[1], 0.1 * kLink * 60, 0.01 * kLink * 60);
  EXPECT_GT(moved[0] + moved[1], 0.95 * kLink * 60);
}

TEST_F(FairSharesTest, ASessionThatStopsDoesNotSlowTheOther) {
  job(account(1));
  Job& stopping = job(account(3));
  (void)run(10 * kSecond);
  stopping.demand = 0;
  stopping.ready = 0;
  EXPECT_GT(run(5 * kSecond)[0], 0.98 * kLink * 5);
}

// The second session alternates between reducing and computing, faster than any window.
TEST_F(FairSharesTest, AnIntermittentSessionGetsItsShareWhileActive) {
  job(account(1));
  Job& intermittent = job(account(1));
  double moved = 0;
  double all = 0;
  for (int step = 0; step < 400; ++step) {
    intermittent.demand = std::numeric_limits<double>::infinity();
    const auto on = run(100 * kMillisecond);
    intermittent.demand = intermittent.ready = 0;
    const auto off = run(100 * kMillisecond);
    if (step < 50) continue;
    moved += on[1] + off[1];
    all += on[0] + on[1] + off[0] + off[1];
  }
  EXPECT_NEAR(moved / all, 0.29, 0.04);
  EXPECT_GT(all, 0.95 * kLink * 70);
}

// Like a lost packet that is retransmitted after 200 ms: the other session does not wait, and the stalled one
// catches up afterwards.
TEST_F(FairSharesTest, ASessionThatStallsBrieflyKeepsItsShare) {
  job(account(1));
  Job& stalling = job(account(3));
  (void)run(10 * kSecond);
  std::vector<double> moved(2);
  for (int second = 0; second < 60; ++second) {
    stalling.stalled = true;
    const auto off = run(200 * kMillisecond);
    stalling.stalled = false;
    const auto on = run(800 * kMillisecond);
    for (size_t i = 0; i < 2; ++i) moved[i] += off[i] + on[i];
  }
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
  EXPECT_GT(moved[0] + moved[1], 0.9 * kLink * 60);  // less sixty times kIdleAfter
}

TEST_F(FairSharesTest, AReturningSessionGetsItsShareAndNoMore) {
  job(account(1));
  Job& returning = job(account(1));
  (void)run(10 * kSecond);
  returning.demand = 0;
  (void)run(20 * kSecond);
  returning.demand = std::numeric_limits<double>::infinity();
  const auto moved = run(4 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 1, 0.15);
}

// The second session moves little at first and later demands more than its share.
TEST_F(FairSharesTest, AModestSessionGetsItsShareOnceItsDemandGrows) {
  job(account(1));
  Job& growing = job(account(3));
  growing.demand = 0.05 * kLink;
  (void)run(30 * kSecond);
  ASSERT_TRUE(growing.member.modest);
  growing.demand = std::numeric_limits<double>::infinity();
  (void)run(5 * kSecond);
  const auto moved = run(20 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
}

TEST_F(FairSharesTest, AdaptsToAChangedCapacity) {
  job(account(1));
  job(account(3));
  for (const double rate : {kLink, 0.3 * kLink, 3 * kLink}) {
    link = rate;
    (void)run(80 * kSecond);  // time to measure, and for wrongly modest sessions to recover
    const auto moved = run(30 * kSecond);
    EXPECT_NEAR(moved[1] / moved[0], 3, 0.2) << rate;
    EXPECT_GT(moved[0] + moved[1], 0.98 * rate * 30) << rate;
  }
}

// A busy machine gives the lanes CPU time for a part of each 100 ms, while the capacity is measured.
TEST_F(FairSharesTest, MeasuresTheLinkAlthoughTheLanesWaitForTheCpu) {
  job(account(1));
  job(account(3));
  without_cpu = 40 * kMillisecond;
  (void)run(3 * kSecond);
  EXPECT_NEAR(shares_.bytes_per_second(), kLink, 0.1 * kLink);
  without_cpu = 0;
  const auto moved = run(10 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
}

// Sessions that moved bytes once, or never, are looked at by no update until they move some.
TEST_F(FairSharesTest, AnUpdateLooksAtSessionsThatMoveBytes) {
  job(account(1));
  job(account(3));
  for (int i = 0; i < 100; ++i) job(account(1)).demand = 0;
  EXPECT_EQ(shares_.engaged().size(), 0U);
  (void)run(5 * kSecond);
  EXPECT_EQ(shares_.engaged().size(), 2U);
  jobs_[1].stalled = true;
  (void)run(2 * FairShares::kClaimExpiry);
  EXPECT_EQ(shares_.engaged().size(), 1U);
  EXPECT_GT(run(kSecond)[0], 0.98 * kLink);
  jobs_[1].stalled = false;
  jobs_[50].demand = kLink;
  (void)run(5 * kSecond);
  EXPECT_EQ(shares_.engaged().size(), 3U);
  const auto moved = run(30 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
  EXPECT_NEAR(moved[50] / moved[0], 1, 0.1);
  jobs_[50].demand = jobs_[50].ready = 0;
  (void)run(2 * FairShares::kClaimExpiry);
  for (Job& j : jobs_) shares_.remove(j.member);
  EXPECT_EQ(shares_.engaged().size(), 0U);
}

TEST_F(FairSharesTest, LimitsNoSessionForARemovedOne) {
  job(account(1));
  Job& removed = job(account(3));
  (void)run(10 * kSecond);
  removed.demand = removed.ready = 0;
  shares_.remove(removed.member);
  EXPECT_GT(run(kSecond)[0], 0.98 * kLink);
  for (const Meter& m : jobs_[0].meters) EXPECT_TRUE(m.may_serve());
}

}  // namespace
}  // namespace sluice::reducer
