// How a pair comes about, and what does not stop it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nccl_plugin/host/offer.h"
#include "nccl_plugin/net/greeting.h"
#include "nccl_plugin/net/limits.h"
#include "tests/unit/nccl_plugin/net_pair.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::test {
namespace {

using transport::tcp::Socket;

uint16_t port_of(HandleMemory& memory) {
  const auto text = transport::tcp::address_text(read_invitation(memory.handle())->address);
  return static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1)));
}

Socket stranger(HandleMemory& memory, std::string_view says) {
  auto socket = transport::tcp::connect_to("127.0.0.1", port_of(memory), {}, monotonic_now() + kPatience);
  EXPECT_TRUE(socket.has_value());
  const auto bytes = std::as_bytes(std::span(says));
  EXPECT_TRUE(transport::tcp::write_all(socket->fd(), bytes, monotonic_now() + kPatience).ok());
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

// As NCCL calls, by device; the streams are those of the settings.
TEST(NetSetup, ConnectsThroughTheFunctionsThatNcclCalls) {
  ASSERT_FALSE(offer().net.empty());
  HandleMemory memory;
  Listener* listener = nullptr;
  ASSERT_TRUE(net::listen(0, memory.handle(), &listener).ok());
  SendComm* send = nullptr;
  RecvComm* recv = nullptr;
  ASSERT_TRUE(until([&] {
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
  Request* sending = nullptr;
  Request* receiving = nullptr;
  ASSERT_TRUE(net::isend(*send, out.data(), out.size(), 1, &sending).ok());
  ASSERT_TRUE(net::irecv(*recv, in.data(), in.size(), 1, &receiving).ok());
  bool sent = false;
  bool received = false;
  ASSERT_TRUE(until([&] {
    if (!sent) {
      EXPECT_TRUE(net::test(*sending, &sent, nullptr).ok());
    }
    if (!received) {
      EXPECT_TRUE(net::test(*receiving, &received, nullptr).ok());
    }
    return sent && received;
  }));
  EXPECT_EQ(in, out);
  net::close(send);
  net::close(recv);
}

TEST(NetSetup, RefusesADeviceThatIsNotThere) {
  Warnings warnings;
  HandleMemory memory;
  Listener* listener = nullptr;
  EXPECT_EQ(net::listen(99, memory.handle(), &listener), Status(Errc::kInvalidArgument));
  EXPECT_EQ(net::listen(-1, memory.handle(), &listener), Status(Errc::kInvalidArgument));
  EXPECT_EQ(listener, nullptr);
  EXPECT_NE(Warnings::all().find("device 99"), std::string::npos);
}

TEST(NetSetup, RefusesAHandleThatIsNotOurs) {
  Warnings warnings;
  HandleMemory memory;
  SendComm* send = nullptr;
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kBadMagic));
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  memory.bytes[4] = std::byte{9};
  EXPECT_EQ(net::connect(0, memory.handle(), &send), Status(Errc::kNoCommonVersion));
  EXPECT_EQ(send, nullptr);
}

TEST(NetSetup, TakesNoPointerFromThePeersHandle) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  ASSERT_TRUE(listener.has_value());
  std::fill(memory.bytes.end() - 8, memory.bytes.end(), std::byte{0x41});
  SendComm* send = nullptr;
  RecvComm* recv = nullptr;
  ASSERT_TRUE(until([&] {
    if (send == nullptr) {
      EXPECT_TRUE(net::connect(0, memory.handle(), &send).ok());
    }
    if (recv == nullptr) {
      if (auto greeted = (*listener)->accept(monotonic_now()))
        recv = RecvComm::make(std::move(*greeted))->release();
    }
    return send != nullptr && recv != nullptr;
  }));
  net::close(send);
  net::close(recv);
}

TEST(NetSetup, StrangersDisturbNothing) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  ASSERT_TRUE(listener.has_value());
  const Secret secret = read_invitation(memory.handle())->secret;
  Secret wrong = secret;
  wrong[15] ^= 1;
  std::string altered = stream_frame(secret);
  altered[70] = static_cast<char>(altered[70] ^ 1);
  std::deque<Socket> strangers;
  strangers.push_back(stranger(
      memory,
      "GET / HTTP/1.1\r\nHost: receiver.example:7470\r\nUser-Agent: a health check of some cluster\r\n\r\n"));
  strangers.push_back(stranger(memory, stream_frame(secret).substr(0, 40)));
  strangers.push_back(stranger(memory, stream_frame(wrong)));
  strangers.push_back(stranger(memory, altered));
  strangers.push_back(stranger(memory, ""));
  strangers.push_back(stranger(memory, std::string(100'000, 'x')));
  stranger(memory, "gone at once");

  auto connector =
      Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 4, terms(), monotonic_now());
  ASSERT_TRUE(connector.has_value());
  std::optional<GreetedStreams> sending;
  std::optional<GreetedStreams> receiving;
  ASSERT_TRUE(until([&] {
    if (!receiving) {
      if (auto greeted = (*listener)->accept(monotonic_now())) receiving = std::move(*greeted);
    }
    if (!sending) {
      if (auto greeted = (*connector)->progress(monotonic_now())) sending = std::move(*greeted);
    }
    return sending && receiving;
  }));
  EXPECT_EQ(sending->sockets.size(), 4u);
  EXPECT_EQ(receiving->sockets.size(), 4u);
}

TEST(NetSetup, ConnectsOverIpv6WhateverTheFamilyOfTheSendersDevice) {
  for (const char* from : {"::1", "127.0.0.1"}) {
    SCOPED_TRACE(from);
    HandleMemory memory;
    auto listener = Listener::open("::1", terms(), memory.handle());
    // A host without IPv6 can't play this; the reason is shown in the summary.
    if (!listener) GTEST_SKIP() << "needs ipv6: " << listener.error().text;
    auto connector = Connector::start(*read_invitation(memory.handle()), from, 2, terms(), monotonic_now());
    ASSERT_TRUE(connector.has_value()) << connector.error().text;
    std::optional<GreetedStreams> sending;
    std::optional<GreetedStreams> receiving;
    ASSERT_TRUE(until([&] {
      if (!receiving) {
        if (auto greeted = (*listener)->accept(monotonic_now())) receiving = std::move(*greeted);
      }
      if (!sending) {
        if (auto greeted = (*connector)->progress(monotonic_now())) sending = std::move(*greeted);
      }
      return sending && receiving;
    }));
    EXPECT_EQ(transport::tcp::peer_name(receiving->sockets[0].fd()).substr(0, 5), "[::1]");
  }
}

TEST(NetSetup, ManyStrangersKeepNobodyOut) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  std::deque<Socket> strangers;
  const auto crowd = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) strangers.push_back(stranger(memory, "h"));
  };
  for (int wave = 0; wave < 3; ++wave) {
    crowd(kMaxStrangers / 2);
    EXPECT_EQ((*listener)->accept(monotonic_now()).error().code, Errc::kWouldBlock);
  }
  auto connector =
      Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 2, terms(), monotonic_now());
  // Over loopback the connects are through at once, and this call greets.
  EXPECT_EQ((*connector)->progress(monotonic_now()).error().code, Errc::kWouldBlock);
  crowd(kMaxStrangers / 2);
  bool sending = false;
  bool receiving = false;
  std::optional<GreetedStreams> kept;
  ASSERT_TRUE(until([&] {
    if (!receiving) {
      if (auto greeted = (*listener)->accept(monotonic_now())) kept = std::move(*greeted), receiving = true;
    }
    if (!sending) sending = (*connector)->progress(monotonic_now()).has_value();
    return sending && receiving;
  }));
}

TEST(NetSetup, DropsAHalfGreetingAfterItsDeadline) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  const Socket half = stranger(memory, stream_frame(read_invitation(memory.handle())->secret).substr(0, 80));
  const Nanos now = monotonic_now();
  std::byte byte{};
  ASSERT_TRUE(until([&] {
    EXPECT_FALSE((*listener)->accept(now).has_value());
    return ::recv(half.fd(), &byte, 1, MSG_DONTWAIT) < 0;
  }));
  ASSERT_TRUE(until([&] {
    EXPECT_FALSE((*listener)->accept(now + kStrangerDeadline).has_value());
    return ::recv(half.fd(), &byte, 1, MSG_DONTWAIT) == 0;
  }));
}

TEST(NetSetup, TellsBothSidesThatThereIsNoCommonVersion) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  const Socket newer = stranger(memory, stream_frame(read_invitation(memory.handle())->secret, 0, 1, 2, 5));
  Error error;
  ASSERT_TRUE(until([&] {
    auto greeted = (*listener)->accept(monotonic_now());
    EXPECT_FALSE(greeted.has_value());
    error = greeted.error();
    return error.code != Errc::kWouldBlock;
  }));
  EXPECT_EQ(error.code, Errc::kNoCommonVersion);
  EXPECT_NE(error.text.find("2-5"), std::string::npos) << error.text;
  FrameBytes reader;
  ASSERT_TRUE(until([&] { return reader.read(newer.fd()).ok(); }));
  wire::StreamAnswer answer;
  ASSERT_TRUE(decode_word(reader.bytes(), answer).ok());
  EXPECT_EQ(answer.code, Errc::kNoCommonVersion);
}

TEST(NetSetup, FailsWhenTheSenderDoesNotComeInTime) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  const Nanos now = monotonic_now();
  EXPECT_EQ((*listener)->accept(now).error().code, Errc::kWouldBlock);
  EXPECT_EQ((*listener)->accept(now + kPeerDeadline - 1).error().code, Errc::kWouldBlock);
  EXPECT_EQ((*listener)->accept(now + kPeerDeadline).error().code, Errc::kTimeout);
}

TEST(NetSetup, FailsWhenTheReceiverDoesNotAcceptInTime) {
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
  const Nanos now = monotonic_now();
  auto connector = Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 2, terms(), now);
  Error error{Errc::kWouldBlock, ""};
  Nanos pretended = now;
  ASSERT_TRUE(until([&] {
    error = (*connector)->progress(pretended).error();
    pretended += kSecond / 100;
    return error.code != Errc::kWouldBlock;
  }));
  EXPECT_EQ(error.code, Errc::kTimeout) << error.text;
  EXPECT_GE(pretended - now, kPeerDeadline);
}

TEST(NetSetup, FailsAtOnceWhenNobodyListens) {
  HandleMemory memory;
  { auto listener = Listener::open("127.0.0.1", terms(), memory.handle()); }
  auto connector =
      Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 2, terms(), monotonic_now());
  Error error{Errc::kSystem, ""};
  if (connector) {
    ASSERT_TRUE(until([&] {
      error = (*connector)->progress(monotonic_now()).error();
      return error.code != Errc::kWouldBlock;
    }));
  } else {
    error = connector.error();
  }
  EXPECT_EQ(error.code, Errc::kSystem);
  EXPECT_NE(error.text.find("connection refused"), std::string::npos) << error.text;
}

// In a child, whose limit is its own: descriptors end while streams are opened, or taken. Exit code 0 when
// what is left works.
int with_descriptors(int left, bool for_connector) {
  // Descriptors of the parent, which an earlier test still closes in the background, would leave holes.
  ::closefrom(3);
  HandleMemory memory;
  auto listener = Listener::open("127.0.0.1", terms(), memory.handle());
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
  auto connector =
      Connector::start(*read_invitation(memory.handle()), "127.0.0.1", 4, terms(), monotonic_now());
  if (!connector) return 4;
  if (for_connector) ::setrlimit(RLIMIT_NOFILE, &before);
  if (!for_connector && !limit_to(left)) return 5;
  std::unique_ptr<SendComm> send;
  std::unique_ptr<RecvComm> recv;
  const bool both = until([&] {
    if (!recv) {
      if (auto greeted = (*listener)->accept(monotonic_now()))
        recv = std::move(*RecvComm::make(std::move(*greeted)));
    }
    if (!send) {
      if (auto greeted = (*connector)->progress(monotonic_now()))
        send = std::move(*SendComm::make(std::move(*greeted)));
    }
    return send && recv;
  });
  if (!both) return 6;
  const auto out = pattern(3 * kMiB, 1);
  std::vector<std::byte> in(out.size());
  Request* sending = nullptr;
  Request* receiving = nullptr;
  if (!net::isend(*send, out.data(), out.size(), 1, &sending).ok()) return 7;
  if (!net::irecv(*recv, in.data(), in.size(), 1, &receiving).ok()) return 8;
  Outcome sent;
  Outcome received;
  const bool over = until([&] {
    look(sending, sent);
    look(receiving, received);
    return sent.over() && received.over();
  });
  return over && sent.done && received.done && in == out ? 0 : 9;
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
  // Two for the context; then as many streams as there is room for.
  for (const int left : {3, 4, 5}) expect_works_with(left, true);
}

TEST(NetSetup, AcceptsFewerStreamsWhenDescriptorsRunOut) {
  for (const int left : {3, 4, 5}) expect_works_with(left, false);
}

}  // namespace
}  // namespace sluice::nccl::test
