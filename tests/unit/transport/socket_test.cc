#include "transport/tcp/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <fstream>
#include <vector>

#include "core/clock.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::transport::tcp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Nanos soon() {
  return monotonic_now() + 20 * kSecond;
}

Socket accept_from(const Socket& listener) {
  pollfd p{.fd = listener.fd(), .events = POLLIN, .revents = 0};
  ::poll(&p, 1, 20'000);
  return Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
}

struct ConnectedPair {
  Socket client, server;
};

ConnectedPair connect_pair(const std::string& host, const SocketOptions& options = {}) {
  const auto listener = listen_on(host, 0, options);
  auto client = connect_to(host, bound_port(listener->fd()).value(), options, soon());
  return {std::move(*client), accept_from(*listener)};
}

int option(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  ::getsockopt(fd, level, name, &value, &size);
  return value;
}

// Connects until the accept queue of a listener without backlog is full, and further SYNs are dropped.
// Returns these connections; none when the kernel queues more than the backlog.
std::vector<Socket> fill_accept_queue(uint16_t port) {
  std::vector<Socket> queue;
  for (int i = 0; i < 10; ++i) {
    auto s = connect_to("127.0.0.1", port, {}, monotonic_now() + 200 * kMillisecond);
    if (!s) return queue;
    queue.push_back(std::move(*s));
  }
  return {};
}

bool has_ipv6() {
  return listen_on("::1", 0, {}).has_value();
}

TEST(Socket, ConnectsOverIpv4AndByName) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const ConnectedPair j = connect_pair(host);
    EXPECT_TRUE(j.client.valid() && j.server.valid()) << host;
  }
}

TEST(Socket, ConnectsOverIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "needs ipv6: this host has no address ::1";
  const ConnectedPair j = connect_pair("::1");
  ASSERT_TRUE(j.server.valid());
  EXPECT_THAT(peer_name(j.server.fd()), StartsWith("[::1]:"));
}

TEST(Socket, IsNonBlockingNoDelayAndCloseOnExec) {
  const ConnectedPair j = connect_pair("127.0.0.1");
  EXPECT_NE(::fcntl(j.client.fd(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(j.client.fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(option(j.client.fd(), IPPROTO_TCP, TCP_NODELAY), 1);
}

// A session reads it before it sends anything.
TEST(Socket, KnowsTheRoundTripFromTheConnect) {
  const ConnectedPair j = connect_pair("127.0.0.1");
  EXPECT_GT(j.client.path_stats().round_trip, 0);
  EXPECT_LT(j.client.path_stats().round_trip, kSecond);
}

TEST(Socket, ListensOnAllAddressesForAnEmptyHost) {
  const auto listener = listen_on("", 0, {});
  ASSERT_TRUE(listener.has_value()) << listener.error().text;
  const uint16_t port = bound_port(listener->fd()).value();
  EXPECT_TRUE(connect_to("127.0.0.1", port, {}, soon()).has_value());
  const Socket server = accept_from(*listener);
  EXPECT_THAT(peer_name(server.fd()), StartsWith("127.0.0.1:")) << "an IPv4 peer of a dual-stack socket";
  if (has_ipv6()) {
    EXPECT_TRUE(connect_to("::1", port, {}, soon()).has_value());
  }
}

TEST(Socket, ReportsHostPortAndCauseWhenRefused) {
  uint16_t port = 0;
  {
    const auto listener = listen_on("127.0.0.1", 0, {});
    port = bound_port(listener->fd()).value();
  }
  const auto s = connect_to("127.0.0.1", port, {}, soon());
  ASSERT_FALSE(s.has_value());
  EXPECT_EQ(s.error().code, Errc::kReset) << "the host answers";
  EXPECT_EQ(s.error().text, "cannot connect to 127.0.0.1:" + std::to_string(port) + ": connection refused");
}

TEST(Socket, TimesOutAtTheDeadlineWithoutAnAnswer) {
  const auto listener = listen_on("127.0.0.1", 0, {}, 0);
  const uint16_t port = bound_port(listener->fd()).value();
  const Nanos begin = monotonic_now();
  const std::vector<Socket> queue = fill_accept_queue(port);
  if (queue.empty())
    GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than the backlog";
  const auto s = connect_to("127.0.0.1", port, {}, monotonic_now() + 200 * kMillisecond);
  ASSERT_FALSE(s.has_value());
  EXPECT_EQ(s.error().code, Errc::kTimeout);
  EXPECT_THAT(s.error().text, HasSubstr(std::to_string(port)));
  EXPECT_LT(monotonic_now() - begin, 20 * kSecond);
}

TEST(Socket, ReportsAPortInUse) {
  const auto first = listen_on("127.0.0.1", 0, {});
  const uint16_t port = bound_port(first->fd()).value();
  for (const char* host : {"127.0.0.1", ""}) {
    const auto second = listen_on(host, port, {});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, Errc::kAddressInUse);
    EXPECT_THAT(second.error().text, HasSubstr("address already in use"));
    EXPECT_THAT(second.error().text, HasSubstr(std::to_string(port)));
  }
}

TEST(Socket, ReportsAForeignAddress) {
  const auto s = listen_on("192.0.2.1", 0, {});
  ASSERT_FALSE(s.has_value());
  EXPECT_THAT(s.error().text, HasSubstr("192.0.2.1"));
}

TEST(Socket, ConnectsFromTheRequestedSourceAddress) {
  const auto listener = listen_on("127.0.0.1", 0, {});
  const uint16_t port = bound_port(listener->fd()).value();
  ASSERT_TRUE(connect_to("127.0.0.1", port, {.congestion_control = {}, .local_address = "127.0.0.2"}, soon())
                  .has_value());
  EXPECT_THAT(peer_name(accept_from(*listener).fd()), StartsWith("127.0.0.2:"));

  const auto foreign =
      connect_to("127.0.0.1", port, {.congestion_control = {}, .local_address = "192.0.2.7"}, soon());
  ASSERT_FALSE(foreign.has_value());
  EXPECT_THAT(foreign.error().text, HasSubstr("192.0.2.7"));
  EXPECT_EQ(foreign.error().code, Errc::kInvalidArgument) << "a retry is useless";

  const auto name =
      connect_to("127.0.0.1", port, {.congestion_control = {}, .local_address = "eth0"}, soon());
  ASSERT_FALSE(name.has_value());
  EXPECT_EQ(name.error().code, Errc::kInvalidArgument);
  EXPECT_THAT(name.error().text, HasSubstr("eth0 is not an IP address"));
}

TEST(Socket, SetsBuffersOnlyWithinTheHostsLimits) {
  size_t rmem = 0, wmem = 0;
  std::ifstream("/proc/sys/net/core/rmem_max") >> rmem;
  std::ifstream("/proc/sys/net/core/wmem_max") >> wmem;
  const size_t limit = std::min(rmem, wmem);
  if (limit < 8192)
    GTEST_SKIP() << "needs socket-buffers: this host does not report net.core.rmem_max and wmem_max";
  const Socket fits(::socket(AF_INET, SOCK_STREAM, 0)), exceeds(::socket(AF_INET, SOCK_STREAM, 0));
  const int before = option(exceeds.fd(), SOL_SOCKET, SO_RCVBUF);

  const AppliedOptions ok =
      apply_options(fits.fd(), {.buffer_bytes = 8192, .congestion_control = {}, .local_address = {}});
  EXPECT_TRUE(ok.buffers_set) << ok.note;
  EXPECT_GE(option(fits.fd(), SOL_SOCKET, SO_RCVBUF), 8192);

  const AppliedOptions refused =
      apply_options(exceeds.fd(), {.buffer_bytes = limit + 1, .congestion_control = {}, .local_address = {}});
  EXPECT_FALSE(refused.buffers_set);
  EXPECT_THAT(refused.note, HasSubstr("net.core."));
  EXPECT_EQ(option(exceeds.fd(), SOL_SOCKET, SO_RCVBUF), before) << "autotuning was disabled";
}

TEST(Socket, ReportsAnUnknownCongestionControl) {
  const Socket s(::socket(AF_INET, SOCK_STREAM, 0));
  const AppliedOptions a =
      apply_options(s.fd(), {.buffer_bytes = 0, .congestion_control = "carrier_pigeon", .local_address = {}});
  EXPECT_FALSE(a.buffers_set);
  EXPECT_FALSE(a.congestion_control_set);
  EXPECT_THAT(a.note, HasSubstr("carrier_pigeon"));

  AppliedOptions listening;
  EXPECT_TRUE(listen_on("127.0.0.1", 0,
                        {.buffer_bytes = 0, .congestion_control = "carrier_pigeon", .local_address = {}}, 1,
                        &listening));
  EXPECT_FALSE(listening.congestion_control_set);
  EXPECT_THAT(listening.note, HasSubstr("carrier_pigeon"));
}

TEST(Socket, ReadsExactlyTheRequestedBytes) {
  const ConnectedPair j = connect_pair("127.0.0.1");
  std::array<std::byte, 10> out{}, in{};
  out.fill(std::byte{7});
  ASSERT_TRUE(write_all(j.client, out, soon()).ok());
  ASSERT_TRUE(read_exact(j.server, std::span(in).first(4), soon()).ok());
  ASSERT_TRUE(read_exact(j.server, std::span(in).subspan(4), soon()).ok());
  EXPECT_EQ(in, out);
  EXPECT_TRUE(read_exact(j.server, {}, 0).ok());
}

TEST(Socket, ReadReportsTimeoutCloseAndReset) {
  ConnectedPair j = connect_pair("127.0.0.1");
  std::array<std::byte, 4> in{};
  EXPECT_EQ(read_exact(j.server, in, monotonic_now() + 10 * kMillisecond), Errc::kTimeout);
  EXPECT_EQ(read_exact(j.server, in, 0), Errc::kTimeout);
  ::shutdown(j.client.fd(), SHUT_WR);
  EXPECT_EQ(read_exact(j.server, in, soon()), Errc::kClosed);

  ConnectedPair broken = connect_pair("127.0.0.1");
  const linger abort{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(broken.client.fd(), SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  broken.client = Socket();
  EXPECT_EQ(read_exact(broken.server, in, soon()), Errc::kReset);
  EXPECT_EQ(write_all(broken.server, in, soon()), Errc::kReset);
}

// Each wait has a deadline of 20 s and must end at once; otherwise the test times out.
TEST(Socket, EveryWaitCanBeInterrupted) {
  const Socket interrupt(::eventfd(1, EFD_CLOEXEC));
  const Deadline until(soon(), interrupt.fd());
  const ConnectedPair j = connect_pair("127.0.0.1");
  std::array<std::byte, 4> in{};
  EXPECT_EQ(read_exact(j.server, in, until), Errc::kShutdown);
  const std::vector<std::byte> much(64 * kMiB);
  EXPECT_EQ(write_all(j.client, much, until), Errc::kShutdown);

  const auto listener = listen_on("127.0.0.1", 0, {}, 0);
  const std::vector<Socket> queue = fill_accept_queue(bound_port(listener->fd()).value());
  if (queue.empty())
    GTEST_SKIP() << "needs accept-queue: this kernel queues more connections than the backlog";
  const auto s = connect_to("127.0.0.1", bound_port(listener->fd()).value(), {}, until);
  ASSERT_FALSE(s.has_value());
  EXPECT_EQ(s.error().code, Errc::kShutdown);
}

TEST(Socket, WriteTimesOutWhenThePeerDoesNotRead) {
  const ConnectedPair j = connect_pair("127.0.0.1");
  const std::vector<std::byte> much(64 * kMiB);
  EXPECT_EQ(write_all(j.client, much, monotonic_now() + 50 * kMillisecond), Errc::kTimeout);
}

TEST(Socket, ClosesTheDescriptorOnceAfterMoves) {
  const int fd = ::dup(STDIN_FILENO);
  {
    Socket first(fd);
    Socket second(std::move(first));
    EXPECT_FALSE(first.valid());  // NOLINT: a moved-from socket owns nothing
    first = std::move(second);
    EXPECT_EQ(first.fd(), fd);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace sluice::transport::tcp
