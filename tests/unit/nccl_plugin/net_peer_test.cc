// Peers that know the secret and then violate the protocol. Each violation ends its own comm with a reason,
// and no other comm.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nccl_plugin/net/frames.h"
#include "tests/unit/nccl_plugin/net_test_bed.h"
#include "transport/tcp/blocking_io.h"

namespace sluice::nccl::test {
namespace {

using transport::tcp::Socket;
using wire::FrameHeader;

void write_frame(const Socket& socket, const FrameHeader& h, size_t payload_bytes) {
  std::vector<std::byte> bytes(wire::kHeaderBytes + payload_bytes, std::byte{0x77});
  wire::encode_header(h, {}, wire::HeaderBytes(bytes.data(), wire::kHeaderBytes));
  // The other side may have closed the connection already.
  (void)transport::tcp::write_all(socket, bytes, monotonic_now() + kTestTimeout);
}

// A receiver whose sender is the test, on two sockets.
struct ScriptedSender {
  ScriptedSender() {
    ConnectedEnds ends = connect_ends(2, tcp_settings());
    recv = std::move(*RecvComm::make(std::move(*ends.receiver)));
    sockets = std::move(ends.sender->sockets);
  }
  ~ScriptedSender() { net::close(recv.release()); }

  [[nodiscard]] Outcome receive(std::byte* data, size_t bytes) const {
    Outcome outcome;
    EXPECT_TRUE(net::irecv(*recv, data, bytes, 0, &outcome.request).ok());
    return outcome;
  }
  std::unique_ptr<RecvComm> recv;
  std::vector<Socket> sockets;
};

constexpr uint32_t kPiece = 1000;
constexpr uint64_t kMessage = 2500;

// An invalid piece for a receive of 4096 bytes that is open as grant 0 of slot 0. With `after_first` the
// first piece has arrived before.
struct InvalidPiece {
  const char* name;
  FrameHeader header;
  size_t payload;
  Errc reason;
  bool after_first;
};

FrameHeader piece(uint32_t number, uint32_t length) {
  return piece_header(0, 0, kMessage, number, kPiece, length);
}
template <typename Change>
FrameHeader changed(FrameHeader h, Change change) {
  change(h);
  return h;
}

std::vector<InvalidPiece> invalid_pieces() {
  std::vector<InvalidPiece> all;
  const auto add = [&](const char* name, const FrameHeader& h, Errc reason, bool after_first = false) {
    all.push_back({name, h, h.length, reason, after_first});
  };
  add("slot without a grant", piece_header(0, 1, kMessage, 0, kPiece, kPiece), Errc::kSlotNotGranted);
  add("slot out of range", piece_header(0, 32, kMessage, 0, kPiece, kPiece), Errc::kSlotNotGranted);
  add("largest slot", piece_header(0, 0xffff, kMessage, 0, kPiece, kPiece), Errc::kSlotNotGranted);
  add("grant of the future", piece_header(1, 0, kMessage, 0, kPiece, kPiece), Errc::kSlotNotGranted);
  add("message over the grant", piece_header(0, 0, 4097, 0, kPiece, kPiece), Errc::kBadLength);
  add("message of 2^64 - 1 bytes", piece_header(0, 0, ~uint64_t{0}, 0, kPiece, kPiece), Errc::kBadLength);
  add("pieces of no bytes", piece_header(0, 0, kMessage, 0, 0, 0), Errc::kBadField);
  add("pieces over the largest", piece_header(0, 0, kMessage, 0, wire::kMaxPayload + 1, kMessage),
      Errc::kBadField);
  add("piece bytes without a message", piece_header(0, 0, 0, 0, kPiece, 0), Errc::kBadField);
  add("first piece after the last", piece(3, 0), Errc::kBadField);
  add("number of 2^32 - 1", piece(0xffffffff, kPiece), Errc::kBadField);
  add("too short", piece(0, kPiece - 1), Errc::kBadLength);
  add("too long", piece(0, kPiece + 1), Errc::kBadLength);
  add("last one as long as the others", piece(2, kPiece), Errc::kBadLength);
  add("empty one of a message with bytes", piece(0, 0), Errc::kBadLength);
  add("type of a reduction",
      {.type = wire::FrameType::kContribution,
       .kind = wire::Kind::kAllreduce,
       .acc_dtype = wire::DType::kI8,
       .length = 10},
      Errc::kUnexpectedMessage);
  add("type of the other direction", grant_header(0, 0, 100, 0), Errc::kUnexpectedMessage);
  add("session", changed(piece(0, kPiece), [](FrameHeader& h) { h.session = 1; }), Errc::kBadField);
  add("view", changed(piece(0, kPiece), [](FrameHeader& h) { h.view_version = 1; }), Errc::kBadField);
  add("resent", changed(piece(0, kPiece), [](FrameHeader& h) { h.flags = wire::kFlagResent; }),
      Errc::kBadField);
  add("payload crc that is wrong",
      changed(piece(0, kPiece), [](FrameHeader& h) { h.flags = wire::kFlagPayloadCrc; }),
      Errc::kBadPayloadCrc);
  add("kind", changed(piece(0, kPiece), [](FrameHeader& h) { h.kind = wire::Kind::kAllreduce; }),
      Errc::kBadKind);
  add("piece a second time", piece(0, kPiece), Errc::kBadSequence, true);
  add("other message size", piece_header(0, 0, kMessage + 1, 1, kPiece, kPiece), Errc::kBadField, true);
  add("other piece size", piece_header(0, 0, kMessage, 1, kPiece - 1, kPiece - 1), Errc::kBadField, true);
  return all;
}

TEST(NetPeer, ReceiverRefusesInvalidPiecesAndWritesNothingOutsideTheGrant) {
  NetPair healthy;
  for (const InvalidPiece& invalid : invalid_pieces()) {
    SCOPED_TRACE(invalid.name);
    WarningRecorder warnings;
    ScriptedSender sender;
    constexpr size_t kGuard = 8192;
    std::vector<std::byte> memory(kGuard + 4096 + kGuard, std::byte{0xee});
    Outcome outcome = sender.receive(memory.data() + kGuard, 4096);
    if (invalid.after_first) write_frame(sender.sockets[0], piece(0, kPiece), kPiece);
    write_frame(sender.sockets[0], invalid.header, invalid.payload);
    ASSERT_TRUE(poll_until_ended(outcome));
    EXPECT_FALSE(outcome.done);
    EXPECT_EQ(to_string(outcome.status.code()), to_string(invalid.reason));
    EXPECT_FALSE(WarningRecorder::all().empty());
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(memory[i], std::byte{0xee}) << "before the grant";
      ASSERT_EQ(memory[kGuard + 4096 + i], std::byte{0xee}) << "after the grant";
    }
    // All streams to the sender are closed.
    for (const Socket& s : sender.sockets) {
      std::byte byte{};
      EXPECT_TRUE(
          poll_until([&] { return ::recv(s.fd(), &byte, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET; }));
    }
  }
  std::vector<std::byte> in(10);
  const auto out = pattern(10, 1);
  Outcome received{healthy.irecv(in)};
  Outcome sent{healthy.isend(out)};
  ASSERT_TRUE(poll_until_ended(sent, received));
  EXPECT_TRUE(sent.done && received.done);
}

TEST(NetPeer, ReceiverRefusesAPieceOnTwoStreams) {
  ScriptedSender sender;
  std::vector<std::byte> memory(4096);
  Outcome outcome = sender.receive(memory.data(), memory.size());
  // Neither piece is complete: both would be written to the same memory at the same time.
  write_frame(sender.sockets[0], piece(0, kPiece), kPiece / 2);
  write_frame(sender.sockets[1], piece(0, kPiece), kPiece / 2);
  ASSERT_TRUE(poll_until_ended(outcome));
  EXPECT_EQ(outcome.status, Status(Errc::kBadSequence));
}

TEST(NetPeer, ReceiverAcceptsPiecesInAnyOrderOnAnyStream) {
  ScriptedSender sender;
  std::vector<std::byte> memory(4096);
  Outcome outcome = sender.receive(memory.data(), memory.size());
  write_frame(sender.sockets[1], piece(2, 500), 500);
  write_frame(sender.sockets[0], piece(1, kPiece), kPiece);
  write_frame(sender.sockets[1], piece(0, kPiece), kPiece);
  ASSERT_TRUE(poll_until_ended(outcome));
  EXPECT_TRUE(outcome.done);
  EXPECT_EQ(outcome.bytes, kMessage);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0x77}), static_cast<std::ptrdiff_t>(kMessage));
}

TEST(NetPeer, ReceiverFailsWhenTheSenderDies) {
  ScriptedSender sender;
  std::vector<std::byte> memory(4096);
  Outcome outcome = sender.receive(memory.data(), memory.size());
  write_frame(sender.sockets[0], piece(0, kPiece), kPiece / 2);
  sender.sockets.clear();  // within a frame
  ASSERT_TRUE(poll_until_ended(outcome));
  EXPECT_EQ(outcome.status, Status(Errc::kReset));
}

// A sender whose receiver is the test; it sends ten bytes.
struct ScriptedReceiver {
  ScriptedReceiver() {
    ConnectedEnds ends = connect_ends(2, tcp_settings());
    send = std::move(*SendComm::make(std::move(*ends.sender)));
    sockets = std::move(ends.receiver->sockets);
    EXPECT_TRUE(net::isend(*send, message.data(), message.size(), 5, &outcome.request).ok());
  }
  ~ScriptedReceiver() { net::close(send.release()); }
  const std::vector<std::byte> message = pattern(10, 1);
  std::unique_ptr<SendComm> send;
  std::vector<Socket> sockets;
  Outcome outcome;
};

TEST(NetPeer, SenderRefusesInvalidGrants) {
  struct InvalidGrant {
    const char* name;
    std::vector<FrameHeader> frames;
    size_t stream;
    Errc reason;
  };
  const InvalidGrant invalid_grants[] = {
      {"first is not 0", {grant_header(1, 0, 10, 0)}, 0, Errc::kBadSequence},
      {"slot out of range", {grant_header(0, 32, 10, 0)}, 0, Errc::kBadSlot},
      {"slot in use", {grant_header(0, 3, 10, 0), grant_header(1, 3, 10, 0)}, 0, Errc::kBadSlot},
      {"on another stream", {grant_header(0, 0, 10, 0)}, 1, Errc::kUnexpectedMessage},
      {"piece", {piece_header(0, 0, 0, 0, 0, 0)}, 0, Errc::kUnexpectedMessage},
      {"fingerprint",
       {changed(grant_header(0, 0, 10, 0), [](FrameHeader& h) { h.fingerprint = 1; })},
       0,
       Errc::kBadField},
      {"view hash",
       {changed(grant_header(0, 0, 10, 0), [](FrameHeader& h) { h.view_hash = 1; })},
       0,
       Errc::kBadField},
  };
  for (const InvalidGrant& invalid : invalid_grants) {
    SCOPED_TRACE(invalid.name);
    WarningRecorder warnings;
    ScriptedReceiver receiver;
    for (const FrameHeader& h : invalid.frames) write_frame(receiver.sockets[invalid.stream], h, 0);
    ASSERT_TRUE(poll_until_ended(receiver.outcome));
    EXPECT_EQ(to_string(receiver.outcome.status.code()), to_string(invalid.reason));
    EXPECT_FALSE(WarningRecorder::all().empty());
  }
}

TEST(NetPeer, SenderFailsWhenTheReceiverDies) {
  ScriptedReceiver receiver;
  receiver.sockets.clear();
  ASSERT_TRUE(poll_until_ended(receiver.outcome));
  EXPECT_EQ(receiver.outcome.status, Status(Errc::kClosed));
}

}  // namespace
}  // namespace sluice::nccl::test
