// Shares of a link that is too narrow, over a link made of counts: chunks of jobs that want so much go over
// it one after the other, as far as the jobs' meters let them. The clock is the test's.
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
  double wants = std::numeric_limits<double>::infinity();  // bytes a second
  double ready = 0;                                        // bytes that it wanted and has not moved
  bool stalled = false;                                    // nothing of it comes
  [[nodiscard]] double moved() const {
    double sum = 0;
    for (const Meter& m : meters) sum += static_cast<double>(m.served());
    return sum;
  }
};

class FairSharesTest : public ::testing::Test {
 protected:
  static constexpr double kLink = 25e6;  // bytes a second

  FairAccount& account(uint32_t weight) { return accounts_.emplace_back(FairAccount{.weight = weight}); }
  Job& job(FairAccount& of, size_t lanes = 2) {
    Job& j = jobs_.emplace_back();
    for (size_t i = 0; i < lanes; ++i) j.member.meters.push_back(&j.meters.emplace_back());
    j.member.account = &of;
    j.member.chunk_bytes = kChunk;
    j.member.under_way = 32 * kChunk;
    shares_.add(j.member);
    return j;
  }
  // Bytes that each job moves within `time`.
  std::vector<double> run(Nanos time) {
    std::vector<double> before;
    for (const Job& j : jobs_) before.push_back(j.moved());
    for (const Nanos end = now_ + time; now_ < end; now_ += kMillisecond) {
      if (now_ % FairShares::kTurn == 0) shares_.turn(now_);
      carry();
    }
    std::vector<double> moved;
    for (size_t i = 0; i < jobs_.size(); ++i) moved.push_back(jobs_[i].moved() - before[i]);
    return moved;
  }

  double link = kLink;
  FairShares shares_;
  std::deque<Job> jobs_;

 private:
  // A millisecond of the link: first come, first served, which is one chunk of each in turn.
  void carry() {
    room_ = std::min(room_ + link * 1e-3, link * 1e-3 + kChunk);
    for (Job& j : jobs_) j.ready = std::min(j.ready + j.wants * 1e-3, 32.0 * kChunk);
    for (size_t idle = 0; idle < jobs_.size() && room_ >= kChunk;) {
      Job& j = jobs_[next_++ % jobs_.size()];
      Meter& meter = j.meters[static_cast<size_t>(j.moved() / kChunk) % j.meters.size()];
      const bool wants = j.ready >= kChunk && !j.stalled;
      meter.set_held(wants && !meter.may_serve());
      if (!wants || !meter.may_serve()) {
        ++idle;
        continue;
      }
      idle = 0;
      meter.add(kChunk);
      j.ready -= kChunk;
      room_ -= kChunk;
    }
  }

  std::deque<FairAccount> accounts_;
  Nanos now_ = kSecond;
  double room_ = 0;
  size_t next_ = 0;
};

TEST_F(FairSharesTest, TwoThatWantAllGetItByTheirWeights) {
  job(account(1));
  job(account(3));
  (void)run(5 * kSecond);
  const auto moved = run(30 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.15);
  EXPECT_GT(moved[0] + moved[1], 0.98 * kLink * 30);
}

TEST_F(FairSharesTest, ManyOfAllWeights) {
  for (const uint32_t weight : {1, 2, 5, 10}) job(account(weight));
  (void)run(5 * kSecond);
  const auto moved = run(60 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 2, 0.15);
  EXPECT_NEAR(moved[2] / moved[0], 5, 0.4);
  EXPECT_NEAR(moved[3] / moved[0], 10, 0.8);
}

TEST_F(FairSharesTest, OneAloneIsNeverHeldBack) {
  job(account(1));
  EXPECT_GT(run(10 * kSecond)[0], 0.999 * kLink * 10);
  EXPECT_EQ(jobs_[0].member.held_for, 0);
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

TEST_F(FairSharesTest, WhatOneDoesNotWantTheOtherHas) {
  job(account(1));
  job(account(100)).wants = 0.1 * kLink;  // its share would be nearly all
  (void)run(10 * kSecond);
  const auto moved = run(60 * kSecond);
  EXPECT_NEAR(moved[1], 0.1 * kLink * 60, 0.01 * kLink * 60);
  EXPECT_GT(moved[0] + moved[1], 0.95 * kLink * 60);
}

TEST_F(FairSharesTest, OneThatStopsCostsTheOtherNothing) {
  job(account(1));
  Job& stops = job(account(3));
  (void)run(10 * kSecond);
  stops.wants = 0;
  stops.ready = 0;
  EXPECT_GT(run(5 * kSecond)[0], 0.98 * kLink * 5);
}

// It computes for as long as it sums, which is shorter than any window.
TEST_F(FairSharesTest, OneThatWantsNowAndThenHasItsShareThen) {
  job(account(1));
  Job& pauses = job(account(1));
  double moved = 0;
  double all = 0;
  for (int step = 0; step < 400; ++step) {
    pauses.wants = std::numeric_limits<double>::infinity();
    const auto on = run(100 * kMillisecond);
    pauses.wants = pauses.ready = 0;
    const auto off = run(100 * kMillisecond);
    if (step < 50) continue;
    moved += on[1] + off[1];
    all += on[0] + on[1] + off[0] + off[1];
  }
  EXPECT_NEAR(moved / all, 0.29, 0.04);
  EXPECT_GT(all, 0.95 * kLink * 70);
}

// As a lost packet does that is sent again after 200 ms: nobody waits for it meanwhile, and it has its part
// afterwards.
TEST_F(FairSharesTest, OneThatStallsNowAndThenKeepsItsShare) {
  job(account(1));
  Job& stalls = job(account(3));
  (void)run(10 * kSecond);
  std::vector<double> moved(2);
  for (int second = 0; second < 60; ++second) {
    stalls.stalled = true;
    const auto off = run(200 * kMillisecond);
    stalls.stalled = false;
    const auto on = run(800 * kMillisecond);
    for (size_t i = 0; i < 2; ++i) moved[i] += off[i] + on[i];
  }
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
  EXPECT_GT(moved[0] + moved[1], 0.9 * kLink * 60);  // kPatience, sixty times
}

TEST_F(FairSharesTest, OneThatComesBackHasItsShareAndNoMore) {
  job(account(1));
  Job& comes = job(account(1));
  (void)run(10 * kSecond);
  comes.wants = 0;
  (void)run(20 * kSecond);
  comes.wants = std::numeric_limits<double>::infinity();
  const auto moved = run(4 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 1, 0.15);
}

// It moves little, and then wants more than its share.
TEST_F(FairSharesTest, OneThatWasModestIsWaitedForWhenItWantsMore) {
  job(account(1));
  Job& grows = job(account(3));
  grows.wants = 0.05 * kLink;
  (void)run(30 * kSecond);
  ASSERT_TRUE(grows.member.modest);
  grows.wants = std::numeric_limits<double>::infinity();
  (void)run(5 * kSecond);
  const auto moved = run(20 * kSecond);
  EXPECT_NEAR(moved[1] / moved[0], 3, 0.2);
}

TEST_F(FairSharesTest, SharesHoldAgainWhenTheLinkHasChanged) {
  job(account(1));
  job(account(3));
  for (const double rate : {kLink, 0.3 * kLink, 3 * kLink}) {
    link = rate;
    (void)run(80 * kSecond);  // to find out, and until whoever was taken for modest no longer is
    const auto moved = run(30 * kSecond);
    EXPECT_NEAR(moved[1] / moved[0], 3, 0.2) << rate;
    EXPECT_GT(moved[0] + moved[1], 0.98 * rate * 30) << rate;
  }
}

TEST_F(FairSharesTest, NobodyIsHeldForOneThatIsGone) {
  job(account(1));
  Job& goes = job(account(3));
  (void)run(10 * kSecond);
  goes.wants = goes.ready = 0;
  shares_.remove(goes.member);
  EXPECT_GT(run(kSecond)[0], 0.98 * kLink);
  for (const Meter& m : jobs_[0].meters) EXPECT_TRUE(m.may_serve());
}

}  // namespace
}  // namespace sluice::reducer
