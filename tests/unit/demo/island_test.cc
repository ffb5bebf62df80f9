#include "demo/outer_steps/island.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace sluice::demo {
namespace {

TEST(Island, DividesTheWorkersAndGivesEachIslandASessionOfItsOwn) {
  const std::string run = "ffffffff0405060708090a0b0c0d0e0f";
  std::set<std::string> sessions{run};
  for (uint32_t rank = 0; rank < 6; ++rank) {
    bench::WorkerOptions worker;
    worker.session = run;
    worker.rank = rank;
    worker.ranks = 6;
    const Island island = island_of(worker, 3);
    EXPECT_EQ(island.index, rank / 2);
    EXPECT_EQ(island.session.rank, rank % 2);
    EXPECT_EQ(island.session.ranks, 2u);
    EXPECT_EQ(island.is_leader(), rank % 2 == 0);
    EXPECT_EQ(island.session.session.size(), run.size());
    EXPECT_EQ(island.session.session.substr(8), run.substr(8));
    sessions.insert(island.session.session);
  }
  EXPECT_EQ(sessions.size(), 4u);
}

TEST(Island, KeepsAMalformedSessionForTheErrorOfTheJoin) {
  for (const char* session : {"", "12", "123456", "nothing at all"}) {
    bench::WorkerOptions worker;
    worker.session = session;
    EXPECT_EQ(island_of(worker, 1).session.session, session);
  }
}

TEST(Island, TrainsOnOtherImagesThanTheOtherIslands) {
  Dataset all;
  for (uint8_t i = 0; i < 11; ++i) {
    all.pixels.insert(all.pixels.end(), kPixels, static_cast<float>(i));
    all.labels.push_back(i);
  }
  std::set<uint8_t> seen;
  for (uint32_t island = 0; island < 3; ++island) {
    const Dataset own = images_of(all, island, 3);
    ASSERT_EQ(own.size(), 3u);  // 2 images are left over
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(own.image(i)[kPixels - 1], static_cast<float>(own.labels[i]));
      EXPECT_TRUE(seen.insert(own.labels[i]).second) << "two islands have an image";
    }
  }
}

}  // namespace
}  // namespace sluice::demo
