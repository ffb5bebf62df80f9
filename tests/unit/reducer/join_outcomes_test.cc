#include "reducer/control/session/join_outcomes.h"

#include <gtest/gtest.h>

namespace sluice::reducer {
namespace {

constexpr auto kMaxOfJob = static_cast<uint32_t>(JoinOutcomes::kMaxOfJob);

SessionId session(uint32_t number) {
  SessionId id{};
  for (size_t i = 0; i < 4; ++i) id.bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  return id;
}

wire::Verdict commit(uint64_t incarnation) {
  wire::Verdict verdict;
  verdict.commit = 1;
  verdict.incarnation = incarnation;
  return verdict;
}

class JoinOutcomesTest : public ::testing::Test {
 protected:
  // As a client that begins sessions and votes no.
  void refuse(const std::string& job, uint32_t number, Nanos now = 0) {
    wire::Verdict verdict;
    verdict.reason.code = Errc::kAborted;
    outcomes.store_verdict({job, session(number)}, verdict, now);
    outcomes.store_refusal({job, session(number)}, {Errc::kAborted, "no"}, 0, {0}, now);
  }
  [[nodiscard]] bool has_verdict(const std::string& job, uint32_t number) const {
    return outcomes.find_verdict({job, session(number)}).reason.code != Errc::kUnknownSession;
  }

  JoinOutcomes outcomes;
};

TEST_F(JoinOutcomesTest, KeepsTheNewestOfAJob) {
  for (uint32_t i = 0; i < kMaxOfJob + 10; ++i) refuse("a", i);
  EXPECT_EQ(outcomes.kept(), kMaxOfJob);
  EXPECT_EQ(outcomes.dropped(), 10u);
  EXPECT_FALSE(has_verdict("a", 9));
  EXPECT_TRUE(has_verdict("a", 10));
  EXPECT_TRUE(has_verdict("a", kMaxOfJob + 9));
}

TEST_F(JoinOutcomesTest, OfAJobStayWhateverAnotherDoes) {
  outcomes.store_verdict({"own", session(1)}, commit(7), 0);
  outcomes.store_refusal({"own", session(2)}, {Errc::kMismatch, "own reason"}, 3, {0}, 0);
  for (uint32_t i = 0; i < 20'000; ++i) refuse("other", i);
  EXPECT_EQ(outcomes.find_verdict({"own", session(1)}).incarnation, 7u);
  EXPECT_EQ(outcomes.find_verdict({"other", session(19'999)}).reason.code, Errc::kAborted);
  const auto* const refusal = outcomes.take_refusal({"own", session(2)}, 1);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->error.text, "own reason");
}

TEST_F(JoinOutcomesTest, OfManyJobsAreBoundedAndGoFromTheJobWithTheMost) {
  outcomes.store_verdict({"own", session(1)}, commit(7), 0);
  for (uint32_t job = 0; job < 100; ++job) {
    for (uint32_t i = 0; i < 100; ++i) refuse("other " + std::to_string(job), i);
  }
  EXPECT_EQ(outcomes.kept(), JoinOutcomes::kMaxKept);
  EXPECT_TRUE(has_verdict("other 99", 99));
  EXPECT_EQ(outcomes.find_verdict({"own", session(1)}).incarnation, 7u);
}

TEST_F(JoinOutcomesTest, OfMoreJobsThanFitGoOldestFirst) {
  for (uint32_t job = 0; job < JoinOutcomes::kMaxKept + 10; ++job) refuse(std::to_string(job), job);
  EXPECT_EQ(outcomes.kept(), JoinOutcomes::kMaxKept);
  EXPECT_FALSE(has_verdict("9", 9));
  EXPECT_TRUE(has_verdict("10", 10));
  refuse("10", 10);  // is the newest now
  refuse("new", 1);
  EXPECT_TRUE(has_verdict("10", 10));
  EXPECT_FALSE(has_verdict("11", 11));
}

TEST_F(JoinOutcomesTest, TellEachRankOnceAndExpire) {
  outcomes.store_refusal({"a", session(1)}, {Errc::kMismatch, "why"}, 3, {0, 5}, 0);
  EXPECT_NE(outcomes.take_refusal({"a", session(1)}, 2047), nullptr);
  outcomes.mark_notified({"a", session(1)}, 4);
  EXPECT_EQ(outcomes.take_refusal({"b", session(1)}, 1), nullptr) << "another job";
  EXPECT_EQ(outcomes.take_refusal({"a", session(1)}, 4), nullptr);
  EXPECT_EQ(outcomes.take_refusal({"a", session(1)}, 1), nullptr) << "rank 4 began a new join";
  refuse("a", 2, 10 * kSecond);
  outcomes.remove_expired(JoinOutcomes::kRetention + kSecond);
  EXPECT_EQ(outcomes.kept(), 1u);
  EXPECT_TRUE(has_verdict("a", 2));
  outcomes.remove_expired(JoinOutcomes::kRetention + 20 * kSecond);
  EXPECT_EQ(outcomes.kept(), 0u);
  EXPECT_EQ(outcomes.dropped(), 0u);
}

}  // namespace
}  // namespace sluice::reducer
