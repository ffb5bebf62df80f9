#include "nccl_plugin/net/silence.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/nccl_plugin/net_pair.h"

namespace sluice::nccl::test {
namespace {

constexpr Nanos kStart = 1000 * kSecond;

TEST(NetSilence, CountsTimeInWhichNothingIsAcknowledged) {
  Silence silence;
  for (int second = 0; second < 200; ++second) {
    // The last acknowledgement is from the start.
    const Acknowledgement a{.outstanding = true, .since_last = second * kSecond};
    EXPECT_EQ(silence.look(a, kStart + second * kSecond), second * kSecond);
  }
}

TEST(NetSilence, IsOverWithEveryAcknowledgement) {
  Silence silence;
  const Acknowledgement none{.outstanding = true, .since_last = 10 * kSecond};
  EXPECT_EQ(silence.look(none, kStart), 0);
  EXPECT_EQ(silence.look(none, kStart + kSecond), kSecond);
  // A stopped peer's host answers the probes of its closed window.
  EXPECT_EQ(silence.look({.outstanding = true, .since_last = kSecond / 2}, kStart + 2 * kSecond), 0);
  EXPECT_EQ(silence.look(none, kStart + 3 * kSecond), 0);
}

TEST(NetSilence, IsNoneWhereNothingIsOutstanding) {
  Silence silence;
  for (int hour = 0; hour < 3; ++hour) {
    const Nanos now = kStart + hour * 3600 * kSecond;
    EXPECT_EQ(silence.look({.outstanding = false, .since_last = 3600 * kSecond}, now), 0);
  }
  // New bytes after a long rest: their acknowledgement is on its way.
  EXPECT_EQ(
      silence.look({.outstanding = true, .since_last = 3 * 3600 * kSecond}, kStart + 4 * 3600 * kSecond), 0);
}

TEST(NetSilence, TheKernelTellsOfBytesThatWaitAtAPeerWhoReadsNothing) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  auto connector =
      Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 1, terms(), monotonic_now());
  GreetedStreams mine;
  GreetedStreams theirs;
  ASSERT_TRUE(until([&] {
    if (mine.sockets.empty()) {
      if (auto greeted = (*connector)->progress(monotonic_now())) mine = std::move(*greeted);
    }
    if (theirs.sockets.empty()) {
      if (auto greeted = (*listener)->accept(monotonic_now())) theirs = std::move(*greeted);
    }
    return !mine.sockets.empty() && !theirs.sockets.empty();
  }));
  const int fd = mine.sockets[0].fd();
  ASSERT_TRUE(until([&] { return !acknowledgement(fd).outstanding; }));
  const std::vector<std::byte> much(kMiB);
  while (::send(fd, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  ASSERT_TRUE(until([&] { return acknowledgement(fd).outstanding; })) << "the window is closed, and probed";
  EXPECT_LT(acknowledgement(fd).since_last, kPatience);
  EXPECT_FALSE(acknowledgement(-1).outstanding);
}

}  // namespace
}  // namespace sluice::nccl::test
