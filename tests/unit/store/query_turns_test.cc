#include "store/server/limits/query_turns.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/clock.h"

namespace sluice::store {
namespace {

TEST(QueryTurns, LetOneQueryOfAJobRun) {
  QueryTurns turns;
  std::vector<QueryTurns::Turn> taken;
  taken.push_back(std::move(*turns.take("0", 0)));
  std::thread second([&] {
    const auto refused = turns.take("0", monotonic_now() + 10 * kMillisecond);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kTooMany);
    EXPECT_EQ(refused.error().text, R"(other queries of job "0" take too long)");
  });
  second.join();
  for (uint32_t job = 1; job < QueryTurns::kMostAtOnce; ++job)
    taken.push_back(std::move(*turns.take(std::to_string(job), 0)));
  EXPECT_EQ(turns.take("x", 0).error().text, "queries of other jobs take too long");
  std::thread waiting([&] { EXPECT_TRUE(turns.take("x", monotonic_now() + 20 * kSecond)); });
  taken.pop_back();
  waiting.join();
  taken.clear();
  EXPECT_TRUE(turns.take("0", 0));
}

}  // namespace
}  // namespace sluice::store
