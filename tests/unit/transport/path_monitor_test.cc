#include "transport/path_monitor.h"

#include <gtest/gtest.h>

#include "tests/support/fake_endpoint.h"

namespace sluice::transport {
namespace {

using ::sluice::test::FakeEndpoint;

TEST(PathMonitor, SumsUpSuccessiveConnections) {
  PathMonitor monitor;
  FakeEndpoint ep;
  monitor.start();
  ep.path = {.packets = 100, .lost_packets = 3};
  const PathReport first = monitor.sample(ep, kSecond);
  EXPECT_EQ(first.packets, 100u);
  EXPECT_EQ(first.lost_packets, 3u);
  ep.path = {.packets = 150, .lost_packets = 2};  // the peer says that one packet was only late
  EXPECT_EQ(monitor.sample(ep, 2 * kSecond).lost_packets, 0u);
  monitor.start();
  ep.path = {.packets = 10, .lost_packets = 1};
  EXPECT_EQ(monitor.sample(ep, 3 * kSecond).packets, 10u);
  const PathReport all = monitor.report(3 * kSecond);
  EXPECT_EQ(all.packets, 160u);
  EXPECT_EQ(all.lost_packets, 4u);
  EXPECT_EQ(all.stalled, 0);
}

TEST(PathMonitor, MeasuresHowLongDataIsUnacknowledgedWithoutProgress) {
  PathMonitor monitor;
  FakeEndpoint ep;
  monitor.start();
  ep.path = {.acked_bytes = 7, .has_unacked = true, .mtu = 9000};
  (void)monitor.sample(ep, 10 * kSecond);
  EXPECT_EQ(monitor.report(11 * kSecond).stalled, 0) << "sent just before the sample, perhaps";
  for (Nanos now = 11; now < 16; ++now) (void)monitor.sample(ep, now * kSecond);
  EXPECT_EQ(monitor.report(16 * kSecond).stalled, 6 * kSecond);
  EXPECT_EQ(monitor.report(16 * kSecond).mtu, 9000u);
  ep.path.acked_bytes = 8;
  (void)monitor.sample(ep, 17 * kSecond);
  EXPECT_EQ(monitor.report(17 * kSecond).stalled, 0);
  ep.path.has_unacked = false;  // an idle connection makes no progress either
  (void)monitor.sample(ep, 18 * kSecond);
  (void)monitor.sample(ep, 90 * kSecond);
  EXPECT_EQ(monitor.report(90 * kSecond).stalled, 0);
}

TEST(PathMonitor, AStallDoesNotGrowWithoutSamples) {
  PathMonitor monitor;
  FakeEndpoint ep;
  monitor.start();
  ep.path.has_unacked = true;
  (void)monitor.sample(ep, 10 * kSecond);
  (void)monitor.sample(ep, 11 * kSecond);
  EXPECT_EQ(monitor.report(13 * kSecond).stalled, 3 * kSecond);
  EXPECT_EQ(monitor.report(60 * kSecond).stalled, 3 * kSecond) << "the thread that samples did not run";
}

TEST(PathMonitor, AStallEndsWithItsConnection) {
  PathMonitor monitor;
  FakeEndpoint ep;
  monitor.start();
  ep.path.has_unacked = true;
  (void)monitor.sample(ep, kSecond);
  (void)monitor.sample(ep, 2 * kSecond);
  ASSERT_EQ(monitor.report(3 * kSecond).stalled, 2 * kSecond);
  monitor.start();
  EXPECT_EQ(monitor.report(3 * kSecond).stalled, 0);
}

TEST(PathWatch, ReportsLossesOfAWindowAndThenRests) {
  PathWatch watch;
  EXPECT_FALSE(watch.add_losses({.packets = 1000, .lost_packets = 900}, kSecond))
      << "before the session was watched";
  EXPECT_FALSE(watch.add_losses({.packets = 2000, .lost_packets = 1000}, 5 * kSecond))
      << "the window has not ended";
  EXPECT_EQ(watch.add_losses({.packets = 11000, .lost_packets = 1020}, 11 * kSecond),
            "1.2 % of 10000 packets were lost within 10 s");
  EXPECT_FALSE(watch.add_losses({.packets = 21000, .lost_packets = 2000}, 21 * kSecond)) << "again, too soon";
  EXPECT_FALSE(watch.add_losses({.packets = 1021000, .lost_packets = 2600}, 700 * kSecond)) << "0.06 %";
  EXPECT_FALSE(watch.add_losses({.packets = 1021100, .lost_packets = 2640}, 710 * kSecond))
      << "only 40 packets";
  EXPECT_TRUE(watch.add_losses({.packets = 1022000, .lost_packets = 2700}, 720 * kSecond));
}

TEST(PathWatch, ReportsEachStallOnceAndThenRests) {
  PathWatch watch;
  EXPECT_FALSE(watch.is_new_stall(4 * kSecond, 10 * kSecond));
  EXPECT_TRUE(watch.is_new_stall(5 * kSecond, 11 * kSecond));
  EXPECT_FALSE(watch.is_new_stall(700 * kSecond, 706 * kSecond)) << "the same stall";
  EXPECT_FALSE(watch.is_new_stall(0, 707 * kSecond));
  EXPECT_TRUE(watch.is_new_stall(5 * kSecond, 720 * kSecond));
  EXPECT_FALSE(watch.is_new_stall(0, 721 * kSecond));
  EXPECT_FALSE(watch.is_new_stall(6 * kSecond, 730 * kSecond)) << "again, too soon";
  EXPECT_TRUE(watch.is_new_stall(600 * kSecond, 1324 * kSecond)) << "it lasts";
  EXPECT_FALSE(watch.is_new_stall(601 * kSecond, 1325 * kSecond));
}

}  // namespace
}  // namespace sluice::transport
