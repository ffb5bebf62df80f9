// Connection setup between a sender and a receiver, also with other clients, errors and few descriptors.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nccl_plugin/host/capabilities.h"
#include "nccl_plugin/net/handshake_frame.h"
#include "nccl_plugin/net/limits.h"
#include "tests/unit/nccl_plugin/net_test_bed.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::test {
namespace {

using transport::tcp::Socket;

uint16_t port_of(HandleMemory& memory) {
  const auto text = transport::tcp::address_text(decode_listen_handle(memory.handle())->address);
  return static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1)));
}

Socket connect_and_send(HandleMemory& memory, std::string_view text) {
  auto socket = transport::tcp::connect_to("127.0.0.1", port_of(memory), {}, monotonic_now() + kTestTimeout);
  EXPECT_TRUE(socket.has_value());
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_TRUE(transport::tcp::write_all(*socket, bytes, monotonic_now() + kTestTimeout).ok());
  return std::move(*socket);
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string stream_frame(const Secret& secret, uint16_t index = 0, uint16_t count = 1, uint8_t min = 1,
                         uint8_t max = 1) {
  return text_of(wire::encode_message(wire::Stream{
      .min_version = min, .max_version = max, .index = index, .count = count, .secret = secret}));
}

// Calls the functions by device, like NCCL, with the number of streams of the settings.
TEST(NetSetup, ConnectsThroughTheFunctionsThatNcclCalls) {
  ASSERT_FALSE(capabilities().net.empty());
  HandleMemory memory;
  Listener* listener = nullptr;
  ASSERT_TRUE(net::listen(0, memory.handle(), &listener).ok());
  SendComm* send = nullptr;
  RecvComm* recv = nullptr;
  ASSERT_TRUE(poll_until([&] {
    if (send == nullptr) {
      EXPECT_TRUE(net::connect(0, memory.handle(), &send).ok());
    }
    if (recv == nullptr) {
      EXPECT_TRUE(net::accept(*listener, &recv).ok());
    }
    return send != nullptr && recv != nullptr;
  }));
  net::close(listener);
  const auto out = pattern(100'000, 1);
  std::vector<std::byte> in(out.size());
  Outcome sent;
  Outcome received;
  ASSERT_TRUE(net::isend(*send, out.data(), out.size(), 1, &sent.request).ok());
  ASSERT_TRUE(net::irecv(*recv, in.data(), in.size(), 1, &received.request).ok());
  ASSERT_TRUE(poll_until_ended(sent, received));
  EXPECT_TRUE(sent.done && received.done);
  EXPECT_EQ(in, out);
  net::close(send);
  net::close(recv);
}

TEST(NetSetup, RefusesAnUnknownDevice) {
  WarningRecorder warnings;
  HandleMemory memory;
  Listener* listener = nullptr;
  EXPECT_EQ(net::listen(99, memory.handle(), &listener), Status(Errc::kInvalidArgument));
  EXPECT_EQ(net::listen(-1, memory.handle(), &listener), Status(Errc::kInvalidArgument));
  EXPECT_EQ(listener, nullptr);
  EXPECT_NE(WarningRecorder::all().find("device 99"), std::string::npos);
}

TEST(NetSetup, RefusesAForeignHandle) {
  WarningRecorder warnings;
  HandleMemory memory;
  SendComm* send = nullptr;
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kBadMagic));
  // NCCL's own networks begin with the node's socket address.
  sockaddr_in v4{
      .sin_family = AF_INET, .sin_port = htons(4791), .sin_addr = {htonl(0x0A000007)}, .sin_zero = {}};
  std::memcpy(memory.bytes.data(), &v4, sizeof v4);
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kBadMagic));
  EXPECT_NE(WarningRecorder::all().find("node 10.0.0.7 uses NCCL's own network: SLUICE_REDUCERS"),
            std::string::npos);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(4791);
  v6.sin6_addr.s6_addr[15] = 7;
  std::memcpy(memory.bytes.data(), &v6, sizeof v6);
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kBadMagic));
  EXPECT_NE(WarningRecorder::all().find("node ::7 uses"), std::string::npos);
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  memory.bytes[4] = std::byte{9};
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kNoCommonVersion));
  EXPECT_EQ(send, nullptr);
}

TEST(NetSetup, DoesNotTrustTheConnectIdOfThePeersHandle) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  ASSERT_TRUE(listener.has_value());
  std::fill(memory.bytes.end() - 8, memory.bytes.end(), std::byte{0x41});
  SendComm* send = nullptr;
  RecvComm* recv = nullptr;
  ASSERT_TRUE(poll_until([&] {
    if (send == nullptr) {
      EXPECT_TRUE(net::connect(0, memory.handle(), &send).ok());
    }
    if (recv == nullptr) {
      if (auto connected = (*listener)->accept(monotonic_now()))
        recv = RecvComm::make(std::move(*connected))->release();
    }
    return send != nullptr && recv != nullptr;
  }));
  net::close(send);
  net::close(recv);
}

TEST(NetSetup, IgnoresOtherClients) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  ASSERT_TRUE(listener.has_value());
  const Secret secret = decode_listen_handle(memory.handle())->secret;
  Secret wrong = secret;
  wrong[15] ^= 1;
  std::string altered = stream_frame(secret);
  altered[70] = static_cast<char>(altered[70] ^ 1);
  std::deque<Socket> other_clients;
  other_clients.push_back(connect_and_send(
      memory,
      "GET / HTTP/1.1\r\nHost: receiver.example:7470\r\nUser-Agent: a health check of some cluster\r\n\r\n"));
  other_clients.push_back(connect_and_send(memory, stream_frame(secret).substr(0, 40)));
  other_clients.push_back(connect_and_send(memory, stream_frame(wrong)));
  other_clients.push_back(connect_and_send(memory, altered));
  other_clients.push_back(connect_and_send(memory, ""));
  other_clients.push_back(connect_and_send(memory, std::string(100'000, 'x')));
  connect_and_send(memory, "closed at once");

  auto connector = start_connector(memory, 4, default_settings());
  ASSERT_TRUE(connector.has_value());
  const ConnectedEnds ends = connect_ends(**connector, **listener);
  EXPECT_EQ(ends.sender->sockets.size(), 4u);
  EXPECT_EQ(ends.receiver->sockets.size(), 4u);
}

TEST(NetSetup, ConnectsOverIpv6FromADeviceOfAnyFamily) {
  for (const char* from : {"::1", "127.0.0.1"}) {
    SCOPED_TRACE(from);
    HandleMemory memory;
    auto listener = Listener::open("::1", default_settings(), memory.handle());
    // A host without IPv6 cannot run this test; the summary shows the reason.
    if (!listener) GTEST_SKIP() << "needs ipv6: " << listener.error().text;
    auto connector = Connector::start(*decode_listen_handle(memory.handle()), from, 2, default_settings(),
                                      monotonic_now());
    ASSERT_TRUE(connector.has_value()) << connector.error().text;
    const ConnectedEnds ends = connect_ends(**connector, **listener);
    EXPECT_EQ(transport::tcp::peer_name(ends.receiver->sockets[0].fd()).substr(0, 5), "[::1]");
  }
}

TEST(NetSetup, ManyOtherClientsDoNotExcludeTheSender) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  std::deque<Socket> other_clients;
  const auto connect_clients = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) other_clients.push_back(connect_and_send(memory, "h"));
  };
  for (int wave = 0; wave < 3; ++wave) {
    connect_clients(kMaxUnauthenticated / 2);
    EXPECT_EQ((*listener)->accept(monotonic_now()).error().code, Errc::kWouldBlock);
  }
  auto connector = start_connector(memory, 2, default_settings());
  // On loopback the sockets are connected at once, and this call sends STREAM.
  EXPECT_EQ((*connector)->progress(monotonic_now()).error().code, Errc::kWouldBlock);
  connect_clients(kMaxUnauthenticated / 2);
  connect_ends(**connector, **listener);
}

TEST(NetSetup, DropsAnIncompleteHandshakeAfterItsTimeout) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  const Secret secret = decode_listen_handle(memory.handle())->secret;
  const Socket incomplete = connect_and_send(memory, stream_frame(secret).substr(0, 80));
  const Nanos now = monotonic_now();
  std::byte byte{};
  ASSERT_TRUE(poll_until([&] {
    EXPECT_FALSE((*listener)->accept(now).has_value());
    return ::recv(incomplete.fd(), &byte, 1, MSG_DONTWAIT) < 0;
  }));
  ASSERT_TRUE(poll_until([&] {
    EXPECT_FALSE((*listener)->accept(now + kHandshakeTimeout).has_value());
    return ::recv(incomplete.fd(), &byte, 1, MSG_DONTWAIT) == 0;
  }));
}

TEST(NetSetup, ReportsAMissingCommonVersionToBothSides) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  const Secret secret = decode_listen_handle(memory.handle())->secret;
  const Socket newer = connect_and_send(memory, stream_frame(secret, 0, 1, 2, 5));
  Error error;
  ASSERT_TRUE(poll_until([&] {
    auto connected = (*listener)->accept(monotonic_now());
    EXPECT_FALSE(connected.has_value());
    error = connected.error();
    return error.code != Errc::kWouldBlock;
  }));
  EXPECT_EQ(error.code, Errc::kNoCommonVersion);
  EXPECT_NE(error.text.find("2-5"), std::string::npos) << error.text;
  HandshakeFrame reader;
  ASSERT_TRUE(poll_until([&] { return reader.read(newer.fd()).ok(); }));
  wire::StreamAnswer answer;
  ASSERT_TRUE(decode_message(reader.bytes(), answer).ok());
  EXPECT_EQ(answer.code, Errc::kNoCommonVersion);
}

TEST(NetSetup, FailsWhenTheSenderDoesNotConnectInTime) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  const Nanos now = monotonic_now();
  EXPECT_EQ((*listener)->accept(now).error().code, Errc::kWouldBlock);
  EXPECT_EQ((*listener)->accept(now + kPeerTimeout - 1).error().code, Errc::kWouldBlock);
  EXPECT_EQ((*listener)->accept(now + kPeerTimeout).error().code, Errc::kTimeout);
}

TEST(NetSetup, FailsWhenTheReceiverDoesNotAcceptInTime) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  const Nanos now = monotonic_now();
  auto connector = start_connector(memory, 2, default_settings(), now);
  Error error{Errc::kWouldBlock, ""};
  Nanos simulated_now = now;
  ASSERT_TRUE(poll_until([&] {
    error = (*connector)->progress(simulated_now).error();
    simulated_now += kSecond / 100;
    return error.code != Errc::kWouldBlock;
  }));
  EXPECT_EQ(error.code, Errc::kTimeout) << error.text;
  EXPECT_GE(simulated_now - now, kPeerTimeout);
}

TEST(NetSetup, FailsAtOnceWithoutAListener) {
  HandleMemory memory;
  { auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle()); }
  auto connector = start_connector(memory, 2, default_settings());
  Error error{Errc::kSystem, ""};
  if (connector) {
    ASSERT_TRUE(poll_until([&] {
      error = (*connector)->progress(monotonic_now()).error();
      return error.code != Errc::kWouldBlock;
    }));
  } else {
    error = connector.error();
  }
  EXPECT_EQ(error.code, Errc::kSystem);
  EXPECT_NE(error.text.find("connection refused"), std::string::npos) << error.text;
}

// Runs in a child process with its own limit of descriptors, which is reached while streams are connected or
// accepted. Returns 0 when the remaining streams work.
int with_descriptors(int left, bool for_connector) {
  // Closes the descriptors of the parent: an earlier test may still close some of them in the background.
  ::closefrom(3);
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", default_settings(), memory.handle());
  if (!listener) return 2;
  const auto limit_to = [](int descriptors) {
    const Socket lowest_free(::dup(0));
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(lowest_free.fd() + descriptors);
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  };
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  if (for_connector && !limit_to(left)) return 3;
  auto connector = start_connector(memory, 4, default_settings());
  if (!connector) return 4;
  if (for_connector) ::setrlimit(RLIMIT_NOFILE, &before);
  if (!for_connector && !limit_to(left)) return 5;
  ConnectedEnds ends = connect_ends(**connector, **listener);
  if (!ends.sender || !ends.receiver) return 6;
  const auto send = std::move(*SendComm::make(std::move(*ends.sender)));
  const auto recv = std::move(*RecvComm::make(std::move(*ends.receiver)));
  const auto out = pattern(3 * kMiB, 1);
  std::vector<std::byte> in(out.size());
  Outcome sent;
  Outcome received;
  if (!net::isend(*send, out.data(), out.size(), 1, &sent.request).ok()) return 7;
  if (!net::irecv(*recv, in.data(), in.size(), 1, &received.request).ok()) return 8;
  return poll_until_ended(sent, received) && sent.done && received.done && in == out ? 0 : 9;
}

void expect_works_with(int left, bool for_connector) {
  SCOPED_TRACE(left);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(with_descriptors(left, for_connector));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "exit code " << WEXITSTATUS(status);
}

TEST(NetSetup, ConnectsWithFewerStreamsWhenDescriptorsRunOut) {
  // Two descriptors for the context, the others for streams.
  for (const int left : {3, 4, 5}) expect_works_with(left, true);
}

TEST(NetSetup, AcceptsFewerStreamsWhenDescriptorsRunOut) {
  for (const int left : {3, 4, 5}) expect_works_with(left, false);
}

}  // namespace
}  // namespace sluice::nccl::test
