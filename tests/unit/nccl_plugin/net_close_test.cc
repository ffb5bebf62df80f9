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
    update(receives.back(), received.back());  // sends its grants
    // The receiver reads rarely, so that much data is in the sockets when the sender has finished.
    unsigned turns = 0;
    ASSERT_TRUE(poll_until([&] {
      if (++turns % 1000 == 0) update(receives.back(), received.back());
      bool all = true;
      for (size_t i = 0; i < kMessages; ++i) {
        update(sends[i], sent[i]);
        all = all && sent[i].ended();
      }
      return all;
    }));
    // The sender has not read this grant when it closes.
    std::vector<std::byte> unused(10);
    Request* const extra = pair.irecv(unused);
    Outcome open;
    update(extra, open);
    net::close(pair.send.release());
    ASSERT_TRUE(poll_until([&] {
      bool all = true;
      for (size_t i = 0; i < kMessages; ++i) {
        update(receives[i], received[i]);
        all = all && received[i].ended();
      }
      return all;
    }));
    for (size_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(received[i].done) << to_string(received[i].status.code());
      EXPECT_EQ(in[i], out[i]);
    }
    ASSERT_TRUE(poll_until([&] {
      update(extra, open);
      return open.ended();
    }));
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
    Request* receive = nullptr;
    Request* send = nullptr;
    if (send_first) {
      send = pair.isend(out);
      receive = pair.irecv(in);
    } else {
      // The grant has arrived before the send, so isend() itself fails.
      receive = pair.irecv(in);
      std::vector<std::byte> other_in(8);
      Request* const other_receive = pair.irecv(other_in, 7);
      const auto other_out = pattern(8, 2);
      Request* const other = pair.isend(other_out, 7);
      Outcome other_received;
      Outcome other_sent;
      ASSERT_TRUE(poll_until([&] {
        update(receive, received);
        update(other, other_sent);
        update(other_receive, other_received);
        return other_sent.ended() && other_received.ended();
      }));
      sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &send);
      EXPECT_EQ(send, nullptr);
    }
    ASSERT_TRUE(poll_until([&] {
      if (send != nullptr) update(send, sent);
      update(receive, received);
      return sent.ended() && received.ended();
    }));
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
    Request* const receive = pair.irecv(in);
    Request* const never = pair.irecv(second, 5);
    Request* const send = pair.isend(out);
    Request* const waits = pair.isend(out, 6);
    Outcome sent;
    Outcome received;
    Outcome open;
    // Transfers a part of the message.
    for (int turn = 0; turn < 3; ++turn) update(receive, received), update(send, sent);
    if (sender_closes) {
      net::close(pair.send.release());
      ASSERT_TRUE(poll_until([&] {
        update(never, open);
        return open.ended();
      }));
      net::close(pair.recv.release());
    } else {
      net::close(pair.recv.release());
      ASSERT_TRUE(poll_until([&] {
        update(waits, open);
        return open.ended();
      }));
      net::close(pair.send.release());
    }
    EXPECT_FALSE(open.done);
    EXPECT_FALSE(WarningRecorder::all().empty());
  }
}

TEST(NetClose, ASendToAClosedReceiverFails) {
  NetPair pair;
  net::close(pair.recv.release());
  const auto out = pattern(10, 1);
  Outcome sent;
  Request* request = nullptr;
  ASSERT_TRUE(poll_until([&] {
    if (request == nullptr) sent.status = net::isend(*pair.send, out.data(), out.size(), 0, &request);
    if (request != nullptr) update(request, sent);
    return sent.ended();
  }));
  EXPECT_EQ(sent.status, Status(Errc::kClosed));
  net::close(pair.send.release());
}

TEST(NetClose, AReceiveFromAClosedSenderFails) {
  NetPair pair;
  net::close(pair.send.release());
  std::vector<std::byte> in(10);
  Outcome received;
  Request* request = nullptr;
  ASSERT_TRUE(poll_until([&] {
    if (request == nullptr) received.status = net::irecv(*pair.recv, in.data(), in.size(), 0, &request);
    if (request != nullptr) update(request, received);
    return received.ended();
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
