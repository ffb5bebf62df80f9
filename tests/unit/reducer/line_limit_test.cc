#include "reducer/control/line_limit.h"

#include <gtest/gtest.h>

#include <map>

namespace sluice::reducer {
namespace {

std::map<std::string, uint64_t> suppressed_at(LineLimit& limit, Nanos now) {
  std::map<std::string, uint64_t> out;
  limit.end_windows(now, [&](const std::string& subject, uint64_t lines) { out[subject] = lines; });
  return out;
}

TEST(LineLimit, CountsWhatItSuppressesUntilTheWindowEnds) {
  LineLimit limit(2, 10 * kSecond, 4);
  int admitted = 0;
  for (int i = 0; i < 7; ++i) admitted += limit.admits("a", i * kSecond) ? 1 : 0;
  EXPECT_EQ(admitted, 2);
  EXPECT_TRUE(limit.admits("b", 7 * kSecond)) << "another subject has its own lines";
  EXPECT_TRUE(suppressed_at(limit, 9 * kSecond).empty());
  EXPECT_EQ(suppressed_at(limit, 10 * kSecond), (std::map<std::string, uint64_t>{{"a", 5}}));
  EXPECT_TRUE(limit.admits("a", 10 * kSecond)) << "a new window";
  EXPECT_TRUE(suppressed_at(limit, 100 * kSecond).empty()) << "nothing was suppressed";
}

TEST(LineLimit, SubjectsBeyondItsSizeShareTheirLines) {
  LineLimit limit(1, 10 * kSecond, 2);
  int admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += limit.admits("job " + std::to_string(i), 0) ? 1 : 0;
  EXPECT_EQ(admitted, 3) << "one each for two subjects, one for all others";
  EXPECT_EQ(suppressed_at(limit, 10 * kSecond), (std::map<std::string, uint64_t>{{"", 997}}));
}

class JobLines : public ::testing::Test {
 protected:
  int admitted(const std::string& host, int jobs, int lines) {
    int count = 0;
    for (int i = 0; i < jobs * lines; ++i)
      count += limit.admits(host + " " + std::to_string(i % jobs), host, 0) ? 1 : 0;
    return count;
  }
  std::map<std::string, uint64_t> suppressed() {
    std::map<std::string, uint64_t> out;
    limit.end_windows(10 * kSecond, [&](uint64_t lines, const std::string& of) { out[of] += lines; });
    return out;
  }

  JobLineLimit limit{3, 10 * kSecond};
};

TEST_F(JobLines, AreBoundedForEachJob) {
  EXPECT_EQ(admitted("a", 1, 5000), 3);
  EXPECT_EQ(admitted("b", 2, 10), 6);
  EXPECT_TRUE(limit.admits("c", "a", 0)) << "what a job has too much is not the host's";
  EXPECT_EQ(suppressed(),
            (std::map<std::string, uint64_t>{{"job \"a 0\"", 4997}, {"job \"b 0\"", 7}, {"job \"b 1\"", 7}}));
}

// The accounts of jobs are fewer than a host can invent names for.
TEST_F(JobLines, OfAHostThatInventsJobsLeaveOtherHostsTheirs) {
  const int lines = admitted("stranger", 10'000, 1);
  EXPECT_LT(lines, 256);
  EXPECT_EQ(admitted("own", 4, 5), 12);
  EXPECT_EQ(suppressed().at("jobs of stranger"), static_cast<uint64_t>(10'000 - lines));
}

}  // namespace
}  // namespace sluice::reducer
