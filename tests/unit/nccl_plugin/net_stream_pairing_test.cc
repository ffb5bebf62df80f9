// The selection of the transport of streams, and peers that know the secret and violate the protocol
// meanwhile. On a host without RDMA the tests behave as on a host whose devices have other addresses.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl_plugin/net/handshake_frame.h"
#include "nccl_plugin/net/limits.h"
#include "tests/unit/nccl_plugin/net_test_bed.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::nccl::test {
namespace {

using transport::tcp::Socket;
using Bytes = std::vector<std::byte>;

StreamSettings rdma_settings(bool rdma_required = false) {
  StreamSettings default_settings;
  default_settings.rdma = true;
  default_settings.rdma_required = rdma_required;
  return default_settings;
}

// Like a host whose devices may not be used.
StreamSettings settings_without_device(bool rdma_required = false) {
  StreamSettings default_settings = rdma_settings(rdma_required);
  default_settings.choice.allows = [](std::string_view, unsigned) { return false; };
  return default_settings;
}

constexpr const char* kRdmaRequired =
    "RDMA is required (SLUICE_TRANSPORT=rdma), but a stream cannot use it: ";
constexpr const char* kProbeError =
    "queue pair probe failed: timeout; a firewall or switch may block RoCE (UDP port 4791)";

constexpr uint64_t kBoth = wire::kStreamRdma | wire::kStreamRdmaOnly;

// Calls one side until it has finished; the test is the other side.
class OneSideFixture : public ::testing::Test {
 protected:
  using Step = std::function<Result<ConnectedStreams>(Nanos)>;

  void run(Step step) { step_ = std::move(step); }
  void step() {
    if (connected_ || error_) return;
    auto result = step_(monotonic_now());
    if (result) {
      connected_ = std::move(*result);
    } else if (result.error().code != Errc::kWouldBlock) {
      error_ = std::move(result.error());
    }
  }
  [[nodiscard]] bool ended() {
    step();
    return connected_ || error_;
  }
  void send(const Bytes& frame) {
    ASSERT_TRUE(transport::tcp::write_all(socket_, frame, monotonic_now() + kTestTimeout).ok());
  }
  template <typename Message>
  void send_message(const Message& message) {
    send(wire::encode_message(message));
  }
  [[nodiscard]] Bytes receive_frame() {
    HandshakeFrame frame;
    EXPECT_TRUE(poll_until([&] {
      step();
      return frame.read(socket_.fd()).ok();
    })) << (error_ ? error_->text : "");
    return {frame.bytes().begin(), frame.bytes().end()};
  }
  template <typename Message>
  [[nodiscard]] Message receive() {
    Message message;
    EXPECT_TRUE(decode_message(receive_frame(), message).ok());
    return message;
  }
  void expect_error(Errc code, const std::string& text) {
    ASSERT_TRUE(poll_until([&] { return ended(); }));
    ASSERT_TRUE(error_);
    EXPECT_EQ(to_string(error_->code), to_string(code));
    EXPECT_NE(error_->text.find(text), std::string::npos) << error_->text;
  }
  void expect_transport(const std::string& transport_text) {
    ASSERT_TRUE(poll_until([&] { return ended(); }));
    ASSERT_TRUE(connected_) << error_->text;
    EXPECT_EQ(connected_->transport_text, transport_text);
    for (const Socket& s : connected_->sockets) EXPECT_FALSE(s.has_queue_pair());
  }

  HandleMemory memory_;
  Socket socket_;
  std::optional<ConnectedStreams> connected_;
  std::optional<Error> error_;

 private:
  Step step_;
};

// A receiver; the test is the sender.
class PairingReceiver : public OneSideFixture {
 protected:
  void open(StreamSettings default_settings) {
    settings_ = std::move(default_settings);
    error_.reset();
    connected_.reset();
    auto listener = Listener::open("127.0.0.1", settings_, memory_.handle());
    ASSERT_TRUE(listener);
    listener_ = std::move(*listener);
    run([this](Nanos now) { return listener_->accept(now); });
  }
  [[nodiscard]] ListenHandle listen_handle() { return *decode_listen_handle(memory_.handle()); }
  void connect_socket() {
    const auto text = transport::tcp::address_text(listen_handle().address);
    const auto port = static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1)));
    auto socket = transport::tcp::connect_to("127.0.0.1", port, {}, monotonic_now() + kTestTimeout);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
  }
  void call(uint64_t features, uint16_t index = 0, uint16_t count = 1) {
    connect_socket();
    const wire::Stream stream{.index = index, .count = count, .secret = listen_handle().secret};
    send_message(wire::StreamOffer{.stream = stream, .features = features});
  }
  // Runs the handshake until the receiver expects PAIR.
  void connect_and_receive_answer() {
    open(rdma_settings());
    call(wire::kStreamRdma);
    ASSERT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
  }
  // Runs the handshake without addresses until the receiver expects PAIRED.
  void connect_and_receive_pair() {
    connect_and_receive_answer();
    send_message(wire::Pair{.address = {}, .reason = "none\nhere"});
    ASSERT_TRUE(receive<wire::Pair>().address.empty());
  }
  StreamSettings settings_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(PairingReceiver, WritesItsFeaturesIntoTheHandle) {
  open(tcp_settings());
  EXPECT_EQ(listen_handle().features, 0u);
  open(rdma_settings());
  EXPECT_EQ(listen_handle().features, wire::kStreamRdma);
  open(rdma_settings(true));
  EXPECT_EQ(listen_handle().features, kBoth);
}

TEST_F(PairingReceiver, AcceptsASenderOfAnEarlierVersionOverTcp) {
  open(rdma_settings());
  connect_socket();
  send_message(wire::Stream{.count = 1, .secret = listen_handle().secret});
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
  expect_transport("streams over TCP: the sender does not offer RDMA");
}

TEST_F(PairingReceiver, IgnoresTheOfferOfRdmaWithTransportTcp) {
  open(tcp_settings());
  call(wire::kStreamRdma);
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
  expect_transport("");
}

TEST_F(PairingReceiver, IgnoresUnknownFeatureBits) {
  open(rdma_settings());
  call(~kBoth);
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
  expect_transport("streams over TCP: the sender does not offer RDMA");
}

TEST_F(PairingReceiver, AcceptsASenderWithoutADeviceOverTcp) {
  connect_and_receive_pair();
  send_message(wire::Paired{.ready = 0, .reason = "no pair"});
  expect_transport("streams over TCP: peer: none here");
}

TEST_F(PairingReceiver, ReportsAnInvalidAddressAndUsesTcp) {
  connect_and_receive_answer();
  send_message(wire::Pair{.address = std::vector<uint8_t>(40, 7), .reason = {}});
  const auto answer = receive<wire::Pair>();
  EXPECT_TRUE(answer.address.empty());
  EXPECT_FALSE(answer.reason.empty());
  send_message(wire::Paired{.ready = 0, .reason = "you have none"});
  expect_transport("streams over TCP: " + answer.reason);
}

TEST_F(PairingReceiver, RefusesPairedWithoutAQueuePair) {
  connect_and_receive_pair();
  send_message(wire::Paired{.ready = 1, .reason = {}});
  expect_error(Errc::kBadField, "a queue pair that does not exist");
}

TEST_F(PairingReceiver, RefusesASenderWithoutRdmaIfRdmaIsRequired) {
  open(rdma_settings(true));
  connect_socket();
  send_message(wire::Stream{.count = 1, .secret = listen_handle().secret});
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kMismatch);
  expect_error(Errc::kMismatch, std::string(kRdmaRequired) + "the sender does not offer RDMA");

  open(rdma_settings(true));
  call(~kBoth);
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kMismatch);
  expect_error(Errc::kMismatch, "the sender does not offer RDMA");
}

TEST_F(PairingReceiver, FailsWithoutAQueuePairIfEitherSideRequiresRdma) {
  for (const bool sender : {true, false}) {
    SCOPED_TRACE(sender);
    open(rdma_settings(!sender));
    call(sender ? kBoth : wire::kStreamRdma);
    ASSERT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
    send_message(wire::Pair{.address = {}, .reason = "no device"});
    ASSERT_TRUE(receive<wire::Pair>().address.empty());
    send_message(wire::Paired{.ready = 0, .reason = "no device"});
    expect_error(Errc::kUnsupported, std::string(kRdmaRequired) + "peer: no device");
  }
}

TEST_F(PairingReceiver, RefusesDifferentFeaturesOnTheStreams) {
  open(rdma_settings());
  call(wire::kStreamRdma, 0, 2);
  const Socket first = std::move(socket_);
  call(0, 1, 2);
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kBadField);
  expect_error(Errc::kBadField, "different features on its streams");
}

TEST_F(PairingReceiver, TimesOutOnASilentPeer) {
  connect_and_receive_answer();
  const Nanos now = monotonic_now();
  EXPECT_EQ(listener_->accept(now + kPeerTimeout - 20 * kSecond).error().code, Errc::kWouldBlock);
  EXPECT_EQ(listener_->accept(now + kPeerTimeout).error().code, Errc::kTimeout);
}

// After an error of one sender the listener accepts another sender.
TEST_F(PairingReceiver, AcceptsAnotherSenderAfterAnInvalidOne) {
  connect_and_receive_answer();
  send_message(wire::Paired{});
  expect_error(Errc::kUnexpectedMessage, "expected PAIR, received an invalid message");
  error_.reset();
  call(0);
  EXPECT_EQ(receive<wire::StreamAnswer>().code, Errc::kOk);
  expect_transport("streams over TCP: the sender does not offer RDMA");
}

Bytes frame_of(wire::FrameHeader header, Bytes body) {
  header.length = static_cast<uint32_t>(body.size());
  Bytes bytes(wire::kHeaderBytes);
  wire::encode_header(header, {}, wire::HeaderBytes(bytes.data(), wire::kHeaderBytes));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

struct InvalidMessage {
  const char* name;
  Bytes bytes;
  Errc reason;
};

// Invalid messages in place of a message of type `type`.
std::vector<InvalidMessage> invalid_messages(wire::FrameType type) {
  std::vector<InvalidMessage> all;
  all.push_back({"answer", wire::encode_message(wire::StreamAnswer{}), Errc::kUnexpectedMessage});
  all.push_back({"grant", frame_of({.type = wire::FrameType::kGrant}, {}), Errc::kUnexpectedMessage});
  all.push_back({"no frame", Bytes(wire::kHeaderBytes, std::byte{'x'}), Errc::kBadMagic});
  all.push_back({"empty", frame_of({.type = type}, {}), Errc::kBadLength});
  all.push_back({"cut", frame_of({.type = type}, {std::byte{8}, std::byte{0}}), Errc::kBadLength});
  all.push_back(
      {"longer than any", frame_of({.type = type}, Bytes(kMaxHandshakeFrameBytes)), Errc::kBadLength});
  all.push_back({"list and text over their limits", frame_of({.type = type}, Bytes(300, std::byte{0x7f})),
                 Errc::kBadField});
  Bytes altered = frame_of({.type = type}, Bytes(4));
  altered[wire::kHeaderBytes - 1] ^= std::byte{1};
  all.push_back({"altered", altered, Errc::kBadHeaderCrc});
  Bytes extended(wire::kHeaderBytes + 8);
  const Bytes extension(8);
  wire::encode_header({.type = type, .ext_len8 = 1}, extension,
                      wire::HeaderBytes(extended.data(), wire::kHeaderBytes));
  all.push_back({"extended", extended, Errc::kBadExtension});
  all.push_back({"payload crc that is wrong",
                 frame_of({.type = type, .flags = wire::kFlagPayloadCrc, .payload_crc = 1}, Bytes(4)),
                 Errc::kBadPayloadCrc});
  return all;
}

TEST_F(PairingReceiver, AnyOtherMessageEndsTheHandshake) {
  for (const InvalidMessage& invalid : invalid_messages(wire::FrameType::kPair)) {
    SCOPED_TRACE(invalid.name);
    connect_and_receive_answer();
    send(invalid.bytes);
    expect_error(invalid.reason, "expected PAIR, received an invalid message: ");
  }
  for (const InvalidMessage& invalid : invalid_messages(wire::FrameType::kPaired)) {
    SCOPED_TRACE(invalid.name);
    connect_and_receive_pair();
    send(invalid.bytes);
    expect_error(invalid.reason, "expected PAIRED, received an invalid message: ");
  }
}

TEST_F(PairingReceiver, FailsWhenTheSenderCloses) {
  connect_and_receive_answer();
  socket_ = {};
  expect_error(Errc::kClosed, "connection closed during queue pair setup");
}

// A sender; the test is the receiver.
class PairingSender : public OneSideFixture {
 protected:
  void start(StreamSettings default_settings, uint64_t features) {
    settings_ = std::move(default_settings);
    error_.reset();
    connected_.reset();
    auto listening = transport::tcp::listen_on("127.0.0.1", 0, {});
    ASSERT_TRUE(listening);
    listening_ = std::move(*listening);
    ListenHandle listen_handle{.features = features};
    socklen_t size = sizeof listen_handle.address;
    ASSERT_EQ(::getsockname(listening_.fd(), reinterpret_cast<sockaddr*>(&listen_handle.address), &size), 0);
    encode_listen_handle(listen_handle, memory_.handle());
    auto started = start_connector(memory_, 1, settings_);
    if (!started) {
      error_ = started.error();
      return;
    }
    connector_ = std::move(*started);
    run([this](Nanos now) { return connector_->progress(now); });
    ASSERT_TRUE(poll_until([&] {
      step();
      socket_ = Socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      return socket_.valid();
    }));
  }
  void answer(Errc code = Errc::kOk) {
    send_message(wire::StreamAnswer{.code = code, .version = wire::kVersionMax, .count = 1});
  }
  // Runs the handshake until the sender expects the answer to its PAIR, which is returned.
  wire::Pair start_and_receive_pair(StreamSettings default_settings) {
    start(std::move(default_settings), wire::kStreamRdma);
    (void)receive_frame();
    answer();
    return receive<wire::Pair>();
  }
  StreamSettings settings_;
  Socket listening_;
  std::unique_ptr<Connector> connector_;
};

TEST_F(PairingSender, SendsStreamToAReceiverWithoutTheFeature) {
  for (const uint64_t features : {uint64_t{0}, ~kBoth}) {
    start(rdma_settings(), features);
    wire::StreamOffer capabilities;
    const Bytes frame = receive_frame();
    EXPECT_EQ(static_cast<wire::FrameType>(frame[5]), wire::FrameType::kStream);
    EXPECT_TRUE(decode_stream_offer(frame, capabilities).ok());
    answer();
    expect_transport("streams over TCP: the receiver does not offer RDMA");
  }
}

TEST_F(PairingSender, SendsItsFeatures) {
  for (const bool rdma_required : {false, true}) {
    start(rdma_settings(rdma_required), wire::kStreamRdma);
    wire::StreamOffer capabilities;
    ASSERT_TRUE(decode_stream_offer(receive_frame(), capabilities).ok());
    EXPECT_EQ(capabilities.features, rdma_required ? kBoth : wire::kStreamRdma);
  }
}

TEST_F(PairingSender, UsesTcpWithoutADeviceAndReportsIt) {
  EXPECT_FALSE(start_and_receive_pair(settings_without_device()).reason.empty());
  send_message(wire::Pair{.address = std::vector<uint8_t>(40, 7), .reason = {}});
  const auto paired = receive<wire::Paired>();
  EXPECT_EQ(paired.ready, 0);
  expect_transport("streams over TCP: " + paired.reason);
}

TEST_F(PairingSender, UsesTcpIfTheReceiversAddressIsInvalid) {
  const bool offered = !start_and_receive_pair(rdma_settings()).address.empty();
  send_message(wire::Pair{.address = std::vector<uint8_t>(40, 7), .reason = {}});
  const auto paired = receive<wire::Paired>();
  EXPECT_EQ(paired.ready, 0);
  if (offered) {
    EXPECT_EQ(paired.reason, "not a queue pair address: wrong magic number");
  }
  expect_transport("streams over TCP: " + paired.reason);
}

TEST_F(PairingSender, ReportsTheReasonIfRdmaIsRequired) {
  start(rdma_settings(true), 0);
  ASSERT_TRUE(error_);
  EXPECT_NE(error_->text.find("a stream cannot use it: the receiver does not offer RDMA"), std::string::npos);

  EXPECT_FALSE(start_and_receive_pair(settings_without_device(true)).reason.empty());
  send_message(wire::Pair{.address = {}, .reason = "none"});
  EXPECT_EQ(receive<wire::Paired>().ready, 0);
  expect_error(Errc::kUnsupported, kRdmaRequired);
}

TEST_F(PairingSender, ReportsAReceiverThatRequiresRdma) {
  start(tcp_settings(), kBoth);
  (void)receive_frame();
  answer(Errc::kMismatch);
  expect_error(Errc::kMismatch, "the receiver requires RDMA");
}

TEST_F(PairingSender, AnyOtherMessageEndsTheHandshake) {
  for (const InvalidMessage& invalid : invalid_messages(wire::FrameType::kPair)) {
    SCOPED_TRACE(invalid.name);
    (void)start_and_receive_pair(rdma_settings());
    send(invalid.bytes);
    expect_error(invalid.reason, "expected PAIR, received an invalid message: ");
  }
}

TEST_F(PairingSender, TimesOutOnASilentPeer) {
  (void)start_and_receive_pair(rdma_settings());
  const Nanos now = monotonic_now();
  EXPECT_EQ(connector_->progress(now + kPeerTimeout - 20 * kSecond).error().code, Errc::kWouldBlock);
  EXPECT_EQ(connector_->progress(now + kPeerTimeout).error().code, Errc::kTimeout);
  EXPECT_FALSE(connector_->is_abandoned(now + kPeerTimeout));
}

// Both sides run the code of the plugin.
struct BothSides {
  BothSides(const StreamSettings& sender, const StreamSettings& receiver,
            const std::string& from = "127.0.0.1", const std::string& to = "127.0.0.1") {
    auto listener = Listener::open(to, receiver, memory.handle());
    auto connector =
        Connector::start(*decode_listen_handle(memory.handle()), from, 4, sender, monotonic_now());
    EXPECT_TRUE(listener && connector);
    const auto is_pending = [](const std::optional<Result<ConnectedStreams>>& end) {
      return !end || (!*end && end->error().code == Errc::kWouldBlock);
    };
    EXPECT_TRUE(poll_until([&] {
      if (is_pending(sending)) sending.emplace((*connector)->progress(monotonic_now()));
      if (is_pending(receiving)) receiving.emplace((*listener)->accept(monotonic_now()));
      return !is_pending(sending) && !is_pending(receiving);
    }));
  }
  HandleMemory memory;
  std::optional<Result<ConnectedStreams>> sending;
  std::optional<Result<ConnectedStreams>> receiving;
};

TEST(NetPairing, BothUseTcpIfOneHasNoDevice) {
  const StreamSettings none = settings_without_device();
  const StreamSettings some = rdma_settings();
  BothSides sides(none, some);
  ASSERT_TRUE(*sides.sending && *sides.receiving);
  const std::string reason = (*sides.sending)->transport_text;
  EXPECT_EQ(reason.find("streams over TCP: "), 0u) << reason;
  const std::string peer_text = "peer: " + reason.substr(std::string("streams over TCP: ").size());
  EXPECT_NE((*sides.receiving)->transport_text.find(peer_text), std::string::npos)
      << (*sides.receiving)->transport_text;
}

TEST(NetPairing, BothFailIfOneRequiresRdmaAndTheOtherHasNoDevice) {
  const StreamSettings none = settings_without_device();
  const StreamSettings rdma_required = rdma_settings(true);
  for (const bool sender : {true, false}) {
    SCOPED_TRACE(sender);
    BothSides sides(sender ? rdma_required : none, sender ? none : rdma_required);
    ASSERT_FALSE(*sides.sending || *sides.receiving);
    EXPECT_EQ(sides.sending->error().code, Errc::kUnsupported);
    EXPECT_EQ(sides.receiving->error().code, Errc::kUnsupported);
  }
}

// Needs the devices of a guest of guest.sh.
TEST(NetPairing, UsesTcpIfTheProbeFails) {
  if (std::getenv("SLUICE_TEST_RDMA") == nullptr)
    GTEST_SKIP() << "left out: rdma/two_rails runs it in its guest";
  const StreamSettings some = rdma_settings();
  BothSides sides(some, some, "10.77.0.1", "10.77.1.2");
  ASSERT_TRUE(*sides.sending && *sides.receiving);
  EXPECT_EQ((*sides.sending)->transport_text, std::string("streams over TCP: ") + kProbeError);
  EXPECT_EQ((*sides.receiving)->transport_text, std::string("streams over TCP: peer: ") + kProbeError);
  for (const Socket& s : (*sides.sending)->sockets) EXPECT_FALSE(s.has_queue_pair());
}

}  // namespace
}  // namespace sluice::nccl::test
