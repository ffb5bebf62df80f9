// Ends: of a comm that is closed, of one whose messages do not fit, of one whose peer is gone.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/nccl_plugin/net_pair.h"

namespace sluice::nccl::test {
namespace {

TEST(NetEnd, ReceiverReadsAllThatWasSentBeforeTheSenderClosed) {
  for (int round = 0; round < 5; ++round) {
    Pair pair(1);
    constexpr size_t kMessages = 24;
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<Request*> sends;
    std::vector<Request*> receives;
    for (size_t i = 0; i < kMessages; ++i) {
      out.push_back(pattern(kMiB, static_cast<unsigned>(i)));
      in.emplace_back(out.back().size());
      receives.push_back(pair.irecv(in[i]));
      sends.push_back(pair.isend(out[i]));
    }
    std::vector<Outcome> sent(kMessages);
    std::vector<Outcome> received(kMessages);
    look(receives.back(), received.back());  // its grants go out
    // The receiver reads as little as it can, so that much lies in the sockets when the sender has done.
    unsigned turns = 0;
    ASSERT_TRUE(until([&] {
      if (++turns % 1000 == 0) look(receives.back(), received.back());
      bool all = true;
      for (size_t i = 0; i < kMessages; ++i) {
        look(sends[i], sent[i]);
        all = all && sent[i].over();
      }
      return all;
    }));
    // One more grant, which the sender has not read when it closes.
    std::vector<std::byte> unused(10);
    Request* const extra = pair.irecv(unused);
    Outcome open;
    look(extra, open);
    net::close(pair.send.release());
    ASSERT_TRUE(until([&] {
      bool all = true;
      for (size_t i = 0; i < kMessages; ++i) {
        look(receives[i], received[i]);
        all = all && received[i].over();
      }
      return all;
    }));
    for (size_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(received[i].done) << to_string(received[i].status.code());
      EXPECT_EQ(in[i], out[i]);
    }
    ASSERT_TRUE(until([&] {
      look(extra, open);
      return open.over();
    }));
    EXPECT_EQ(open.status, Status(Errc::kClosed));
    net::close(pair.recv.release());
  }
}

TEST(NetEnd, MessageLongerThanItsReceiveEndsBothSidesWithItsName) {
  for (const bool send_first : {true, false}) {
    Warnings warnings;
    Pair pair;
    const auto out = pattern(8192, 1);
    std::vector<std::byte> in(4096, std::byte{0xee});
    Outcome sent;
    Outcome received;
    Request* receive = nullptr;
    Request* send = nullptr;
    if (send_first) {
      send = pair.isend(out);
      receive = pair.irecv(in);
    } else {
      // The grant is there when the send comes: that call itself fails.
      receive = pair.irecv(in);
      std::vector<std::byte> other_in(8);
      Request* const other_receive = pair.irecv(other_in, 7);
      const auto other_out = pattern(8, 2);
      Request* const other = pair.isend(other_out, 7);
      Outcome arrived;
      Outcome gone;
      ASSERT_TRUE(until([&] {
        look(receive, received);
        look(other, gone);
        look(other_receive, arrived);
        return gone.over() && arrived.over();
      }));
      sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &send);
      EXPECT_EQ(send, nullptr);
    }
    ASSERT_TRUE(until([&] {
      if (send != nullptr) look(send, sent);
      look(receive, received);
      return sent.over() && received.over();
    }));
    EXPECT_EQ(sent.status, Status(Errc::kBadLength));
    EXPECT_EQ(received.status, Status(Errc::kBadLength));
    EXPECT_EQ(in, std::vector<std::byte>(4096, std::byte{0xee}));
    EXPECT_NE(Warnings::all().find("message of 8192 bytes for a receive of 4096"), std::string::npos)
        << Warnings::all();
    EXPECT_NE(Warnings::all().find("message of 8192 bytes where the receiver expects 4096"),
              std::string::npos);
    // Every request of the comm tells the same from now on.
    Request* later = nullptr;
    EXPECT_EQ(net::isend(*pair.send, out.data(), 1, 0, &later), Status(Errc::kBadLength));
    EXPECT_EQ(net::irecv(*pair.recv, in.data(), 1, 0, &later), Status(Errc::kBadLength));
    net::close(pair.send.release());
    net::close(pair.recv.release());
  }
}

TEST(NetEnd, ClosingWithRequestsOpenEndsThePeersRequests) {
  for (const bool sender_closes : {true, false}) {
    Warnings warnings;
    Pair pair;
    const auto out = pattern(4 * kMiB, 1);
    std::vector<std::byte> in(out.size());
    std::vector<std::byte> second(10);
    Request* const receive = pair.irecv(in);
    Request* const never = pair.irecv(second, 5);
    Request* const send = pair.isend(out);
    Request* const waits = pair.isend(out, 6);
    Outcome sent;
    Outcome received;
    Outcome open;
    // Into the middle of the message.
    for (int turn = 0; turn < 3; ++turn) look(receive, received), look(send, sent);
    if (sender_closes) {
      net::close(pair.send.release());
      ASSERT_TRUE(until([&] {
        look(never, open);
        return open.over();
      }));
      net::close(pair.recv.release());
    } else {
      net::close(pair.recv.release());
      ASSERT_TRUE(until([&] {
        look(waits, open);
        return open.over();
      }));
      net::close(pair.send.release());
    }
    EXPECT_FALSE(open.done);
    EXPECT_FALSE(Warnings::all().empty());
  }
}

TEST(NetEnd, SendToAReceiverThatHasClosedFails) {
  Pair pair;
  net::close(pair.recv.release());
  const auto out = pattern(10, 1);
  Outcome sent;
  Request* request = nullptr;
  ASSERT_TRUE(until([&] {
    if (request == nullptr) sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &request);
    if (request != nullptr) look(request, sent);
    return sent.over();
  }));
  EXPECT_EQ(sent.status, Status(Errc::kClosed));
  net::close(pair.send.release());
}

TEST(NetEnd, ReceiveFromASenderThatHasClosedFails) {
  Pair pair;
  net::close(pair.send.release());
  std::vector<std::byte> in(10);
  Outcome received;
  Request* request = nullptr;
  ASSERT_TRUE(until([&] {
    if (request == nullptr) received.status = net::irecv(*pair.recv, in.data(), in.size(), 0, &request);
    if (request != nullptr) look(request, received);
    return received.over();
  }));
  EXPECT_EQ(received.status, Status(Errc::kClosed));
  net::close(pair.recv.release());
}

TEST(NetEnd, ClosesInAnyOrderWithoutAWord) {
  Warnings warnings;
  for (int round = 0; round < 50; ++round) {
    Pair pair(2);
    if (round % 2 == 0) {
      net::close(pair.send.release());
      net::close(pair.recv.release());
    } else {
      net::close(pair.recv.release());
      net::close(pair.send.release());
    }
  }
  net::close(static_cast<SendComm*>(nullptr));
  net::close(static_cast<RecvComm*>(nullptr));
  EXPECT_EQ(Warnings::all(), "");
}

}  // namespace
}  // namespace sluice::nccl::test
