#include "nccl_plugin/net/peer_timeout.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/nccl_plugin/net_test_bed.h"

namespace sluice::nccl::test {
namespace {

constexpr Nanos kStart = 1000 * kSecond;

TEST(NetPeerTimeout, MeasuresTheTimeWithoutAcknowledgements) {
  PeerTimeout timeout;
  for (int second = 0; second < 200; ++second) {
    // The last acknowledgement arrived at the start.
    const AckState a{.is_outstanding = true, .since_last = second * kSecond};
    EXPECT_EQ(timeout.update(a, kStart + second * kSecond), second * kSecond);
  }
}

TEST(NetPeerTimeout, RestartsAfterEachAcknowledgement) {
  PeerTimeout timeout;
  const AckState none{.is_outstanding = true, .since_last = 10 * kSecond};
  EXPECT_EQ(timeout.update(none, kStart), 0);
  EXPECT_EQ(timeout.update(none, kStart + kSecond), kSecond);
  // The host of a stopped process acknowledges the probes of its closed window.
  EXPECT_EQ(timeout.update({.is_outstanding = true, .since_last = kSecond / 2}, kStart + 2 * kSecond), 0);
  EXPECT_EQ(timeout.update(none, kStart + 3 * kSecond), 0);
}

TEST(NetPeerTimeout, IsZeroWhileNothingIsOutstanding) {
  PeerTimeout timeout;
  for (int hour = 0; hour < 3; ++hour) {
    const Nanos now = kStart + hour * 3600 * kSecond;
    EXPECT_EQ(timeout.update({.is_outstanding = false, .since_last = 3600 * kSecond}, now), 0);
  }
  // New bytes after a long idle time: their acknowledgement is in flight.
  const AckState new_bytes{.is_outstanding = true, .since_last = 3 * 3600 * kSecond};
  EXPECT_EQ(timeout.update(new_bytes, kStart + 4 * 3600 * kSecond), 0);
}

TEST(NetPeerTimeout, TheKernelReportsBytesThatThePeerDoesNotRead) {
  const ConnectedEnds ends = connect_ends(1, default_settings());
  const int fd = ends.sender->sockets[0].fd();
  ASSERT_TRUE(poll_until([&] { return !read_ack_state(fd).is_outstanding; }));
  const std::vector<std::byte> much(kMiB);
  while (::send(fd, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  ASSERT_TRUE(poll_until([&] { return read_ack_state(fd).is_outstanding; }))
      << "the window is closed and the kernel sends probes";
  EXPECT_LT(read_ack_state(fd).since_last, kTestTimeout);
  EXPECT_FALSE(read_ack_state(-1).is_outstanding);
}

}  // namespace
}  // namespace sluice::nccl::test
