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

}  // namespace
}  // namespace sluice::reducer
