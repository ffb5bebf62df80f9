// Ends of a comm: closed by a user, failed by a message that does not fit, failed by the loss of the peer.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/nccl_plugin/net_test_bed.h"

namespace sluice::nccl::test {
namespace {

TEST(NetClose, TheReceiverGetsAllDataSentBeforeTheClose) {
  for (int round = 0; round < 5; ++round) {
    NetPair pair(1);
    constexpr size_t kMessages = 24;
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<Outcome> sent;
    std::vector<Outcome> received;
    for (size_t i = 0; i < kMessages; ++i) {
      out.push_back(pattern(kMiB, static_cast<unsigned>(i)));
      in.emplace_back(out.back().size());
      received.push_back({pair.irecv(in[i])});
      sent.push_back({pair.isend(out[i])});
    }
    update(received.back());  // sends its grants
    // The receiver reads rarely, so that much data is in the sockets when the sender has finished.
    unsigned turns = 0;
    ASSERT_TRUE(poll_until([&] {
      if (++turns % 1000 == 0) update(received.back());
      return update(sent);
    }));
    // The sender has not read this grant when it closes.
    std::vector<std::byte> unused(10);
    Outcome open{pair.irecv(unused)};
    update(open);
    net::close(pair.send.release());
    ASSERT_TRUE(poll_until_ended(received));
    for (size_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(received[i].done) << to_string(received[i].status.code());
      EXPECT_EQ(in[i], out[i]);
    }
    ASSERT_TRUE(poll_until_ended(open));
    EXPECT_EQ(open.status, Status(Errc::kClosed));
    net::close(pair.recv.release());
  }
}

TEST(NetClose, AMessageLongerThanItsReceiveFailsBothSidesWithTheReason) {
  for (const bool send_first : {true, false}) {
    WarningRecorder warnings;
    NetPair pair;
    const auto out = pattern(8192, 1);
    std::vector<std::byte> in(4096, std::byte{0xee});
    Outcome sent;
    Outcome received;
    if (send_first) {
      sent.request = pair.isend(out);
      received.request = pair.irecv(in);
    } else {
      // The grant has arrived before the send, so isend() itself fails.
      received.request = pair.irecv(in);
      std::vector<std::byte> other_in(8);
      Outcome other_received{pair.irecv(other_in, 7)};
      const auto other_out = pattern(8, 2);
      Outcome other_sent{pair.isend(other_out, 7)};
      update(received);
      ASSERT_TRUE(poll_until_ended(other_sent, other_received));
      sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &sent.request);
      EXPECT_EQ(sent.request, nullptr);
    }
    ASSERT_TRUE(poll_until_ended(sent, received));
    EXPECT_EQ(sent.status, Status(Errc::kBadLength));
    EXPECT_EQ(received.status, Status(Errc::kBadLength));
    EXPECT_EQ(in, std::vector<std::byte>(4096, std::byte{0xee}));
    EXPECT_NE(WarningRecorder::all().find("message of 8192 bytes for a receive of 4096"), std::string::npos)
        << WarningRecorder::all();
    const char* const sender_warning = "message of 8192 bytes, but the receiver expects at most 4096 bytes";
    EXPECT_NE(WarningRecorder::all().find(sender_warning), std::string::npos);
    // All later requests of the comm return the same error.
    Request* later = nullptr;
    EXPECT_EQ(net::isend(*pair.send, out.data(), 1, 0, &later), Status(Errc::kBadLength));
    EXPECT_EQ(net::irecv(*pair.recv, in.data(), 1, 0, &later), Status(Errc::kBadLength));
    net::close(pair.send.release());
    net::close(pair.recv.release());
  }
}

TEST(NetClose, ClosingWithOpenRequestsEndsThePeersRequests) {
  for (const bool sender_closes : {true, false}) {
    WarningRecorder warnings;
    NetPair pair;
    const auto out = pattern(4 * kMiB, 1);
    std::vector<std::byte> in(out.size());
    std::vector<std::byte> second(10);
    Outcome received{pair.irecv(in)};
    Outcome open_receive{pair.irecv(second, 5)};
    Outcome sent{pair.isend(out)};
    Outcome open_send{pair.isend(out, 6)};
    // Transfers a part of the message.
    for (int turn = 0; turn < 3; ++turn) update(received), update(sent);
    Outcome& open = sender_closes ? open_receive : open_send;
    if (sender_closes) {
      net::close(pair.send.release());
    } else {
      net::close(pair.recv.release());
    }
    ASSERT_TRUE(poll_until_ended(open));
    net::close(pair.recv.release());
    net::close(pair.send.release());
    EXPECT_FALSE(open.done);
    EXPECT_FALSE(WarningRecorder::all().empty());
  }
}

TEST(NetClose, ASendToAClosedReceiverFails) {
  NetPair pair;
  net::close(pair.recv.release());
  const auto out = pattern(10, 1);
  Outcome sent;
  ASSERT_TRUE(poll_until([&] {
    if (sent.request == nullptr)
      sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &sent.request);
    return sent.request == nullptr ? sent.ended() : update(sent);
  }));
  EXPECT_EQ(sent.status, Status(Errc::kClosed));
  net::close(pair.send.release());
}

TEST(NetClose, AReceiveFromAClosedSenderFails) {
  NetPair pair;
  net::close(pair.send.release());
  std::vector<std::byte> in(10);
  Outcome received;
  ASSERT_TRUE(poll_until([&] {
    if (received.request == nullptr)
      received.status = net::irecv(*pair.recv, in.data(), in.size(), 0, &received.request);
    return received.request == nullptr ? received.ended() : update(received);
  }));
  EXPECT_EQ(received.status, Status(Errc::kClosed));
  net::close(pair.recv.release());
}

TEST(NetClose, ClosesInAnyOrderWithoutAWarning) {
  WarningRecorder warnings;
  for (int round = 0; round < 50; ++round) {
    NetPair pair(2);
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
  EXPECT_EQ(WarningRecorder::all(), "");
}

}  // namespace
}  // namespace sluice::nccl::test
