// What streams go over, and what a peer that knows the secret may say wrongly on the way. A host without RDMA
// plays it as one whose devices have other addresses.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nccl_plugin/net/greeting.h"
#include "nccl_plugin/net/limits.h"
#include "tests/unit/nccl_plugin/net_pair.h"
#include "transport/tcp/address.h"

namespace sluice::nccl::test {
namespace {

using transport::tcp::Socket;
using Bytes = std::vector<std::byte>;

StreamTerms wanted(bool alone = false) {
  StreamTerms terms;
  terms.rdma = true;
  terms.only_rdma = alone;
  return terms;
}

// As on a host whose devices may not be used.
StreamTerms without_device(bool alone = false) {
  StreamTerms terms = wanted(alone);
  terms.choice.allows = [](std::string_view, unsigned) { return false; };
  return terms;
}

constexpr uint64_t kBoth = wire::kStreamRdma | wire::kStreamRdmaAlone;

// One end of ours, called until it is over; the other is the test.
class OneEnd : public ::testing::Test {
 protected:
  using Step = std::function<Result<GreetedStreams>(Nanos)>;

  void run(Step step) { step_ = std::move(step); }
  void turn() {
    if (greeted_ || error_) return;
    auto result = step_(monotonic_now());
    if (result) {
      greeted_ = std::move(*result);
    } else if (result.error().code != Errc::kWouldBlock) {
      error_ = std::move(result.error());
    }
  }
  [[nodiscard]] bool over() {
    turn();
    return greeted_ || error_;
  }
  void say(const Bytes& frame) {
    ASSERT_TRUE(transport::tcp::write_all(socket_.fd(), frame, monotonic_now() + kPatience).ok());
  }
  template <typename Message>
  void say_word(const Message& message) {
    say(wire::encode_message(message));
  }
  [[nodiscard]] Bytes hear_frame() {
    FrameBytes frame;
    EXPECT_TRUE(until([&] {
      turn();
      return frame.read(socket_.fd()).ok();
    })) << (error_ ? error_->text : "");
    return {frame.bytes().begin(), frame.bytes().end()};
  }
  template <typename Message>
  [[nodiscard]] Message hear() {
    Message message;
    EXPECT_TRUE(decode_word(hear_frame(), message).ok());
    return message;
  }
  void expect_error(Errc code, const std::string& text) {
    ASSERT_TRUE(until([&] { return over(); }));
    ASSERT_TRUE(error_);
    EXPECT_EQ(to_string(error_->code), to_string(code));
    EXPECT_NE(error_->text.find(text), std::string::npos) << error_->text;
  }
  void expect_way(const std::string& way) {
    ASSERT_TRUE(until([&] { return over(); }));
    ASSERT_TRUE(greeted_) << error_->text;
    EXPECT_EQ(greeted_->way, way);
    for (const Socket& s : greeted_->sockets) EXPECT_FALSE(s.accompanied());
  }

  HandleMemory memory_;
  Socket socket_;
  std::optional<GreetedStreams> greeted_;
  std::optional<Error> error_;

 private:
  Step step_;
};

// A receiver of ours.
class PairingReceiver : public OneEnd {
 protected:
  void open(StreamTerms terms) {
    terms_ = std::move(terms);
    error_.reset();
    greeted_.reset();
    auto listener = Listener::open("127.0.0.1", terms_, memory_.handle());
    ASSERT_TRUE(listener);
    listener_ = std::move(*listener);
    run([this](Nanos now) { return listener_->accept(now); });
  }
  [[nodiscard]] Invitation told() { return *read_invitation(memory_.handle()); }
  void dial() {
    const auto text = transport::tcp::address_text(told().address);
    const auto port = static_cast<uint16_t>(std::stoul(text.substr(text.rfind(':') + 1)));
    auto socket = transport::tcp::connect_to("127.0.0.1", port, {}, monotonic_now() + kPatience);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
  }
  void call(uint64_t features, uint16_t index = 0, uint16_t count = 1) {
    dial();
    say_word(wire::StreamOffer{.stream = {.index = index, .count = count, .secret = told().secret},
                               .features = features});
  }
  // Up to where PAIR comes next.
  void be_answered() {
    open(wanted());
    call(wire::kStreamRdma);
    ASSERT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
  }
  // Up to where PAIRED comes next, without an address.
  void be_answered_twice() {
    be_answered();
    say_word(wire::Pair{.address = {}, .why = "none\nhere"});
    ASSERT_TRUE(hear<wire::Pair>().address.empty());
  }
  StreamTerms terms_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(PairingReceiver, TellsItsFeaturesInTheHandle) {
  open(tcp_terms());
  EXPECT_EQ(told().features, 0u);
  open(wanted());
  EXPECT_EQ(told().features, wire::kStreamRdma);
  open(wanted(true));
  EXPECT_EQ(told().features, kBoth);
}

TEST_F(PairingReceiver, ASenderThatKnowsNoneOfItIsTakenOverTcp) {
  open(wanted());
  dial();
  say_word(wire::Stream{.count = 1, .secret = told().secret});
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
  expect_way("streams over TCP: the sender offers no RDMA");
}

TEST_F(PairingReceiver, WhoWantsTcpIsOfferedWhatItDidNotAskFor) {
  open(tcp_terms());
  call(wire::kStreamRdma);
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
  expect_way("");
}

TEST_F(PairingReceiver, BitsThatNobodyKnowsAreIgnored) {
  open(wanted());
  call(~kBoth);
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
  expect_way("streams over TCP: the sender offers no RDMA");
}

TEST_F(PairingReceiver, ASenderWithoutADeviceIsTakenOverTcp) {
  be_answered_twice();
  say_word(wire::Paired{.ready = 0, .why = "no pair"});
  expect_way("streams over TCP: there: none here");
}

TEST_F(PairingReceiver, AnAddressThatIsNoneIsTakenOverTcpAndTold) {
  be_answered();
  say_word(wire::Pair{.address = std::vector<uint8_t>(40, 7), .why = {}});
  const auto answer = hear<wire::Pair>();
  EXPECT_TRUE(answer.address.empty());
  EXPECT_FALSE(answer.why.empty());
  say_word(wire::Paired{.ready = 0, .why = "you have none"});
  expect_way("streams over TCP: " + answer.why);
}

TEST_F(PairingReceiver, APairThatThereIsNotIsRefused) {
  be_answered_twice();
  say_word(wire::Paired{.ready = 1, .why = {}});
  expect_error(Errc::kBadField, "a queue pair that there is not");
}

TEST_F(PairingReceiver, WhereRdmaAloneIsTakenOthersAreRefused) {
  open(wanted(true));
  dial();
  say_word(wire::Stream{.count = 1, .secret = told().secret});
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kMismatch);
  expect_error(Errc::kMismatch, "no RDMA for a stream, and nothing else is allowed: the sender offers none");

  open(wanted(true));
  call(~kBoth);
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kMismatch);
  expect_error(Errc::kMismatch, "the sender offers none");
}

TEST_F(PairingReceiver, WhereEitherTakesRdmaAloneWhatIsNotPairedEnds) {
  for (const bool sender : {true, false}) {
    SCOPED_TRACE(sender);
    open(wanted(!sender));
    call(sender ? kBoth : wire::kStreamRdma);
    ASSERT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
    say_word(wire::Pair{.address = {}, .why = "no device"});
    ASSERT_TRUE(hear<wire::Pair>().address.empty());
    say_word(wire::Paired{.ready = 0, .why = "no device"});
    expect_error(Errc::kUnsupported, "no RDMA for a stream, and nothing else is allowed: there: no device");
  }
}

TEST_F(PairingReceiver, FeaturesThatDifferBetweenStreamsAreRefused) {
  open(wanted());
  call(wire::kStreamRdma, 0, 2);
  const Socket first = std::move(socket_);
  call(0, 1, 2);
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kBadField);
  expect_error(Errc::kBadField, "other features on another stream");
}

TEST_F(PairingReceiver, SilenceEndsAtItsDeadline) {
  be_answered();
  const Nanos now = monotonic_now();
  EXPECT_EQ(listener_->accept(now + kPeerDeadline - kSecond).error().code, Errc::kWouldBlock);
  EXPECT_EQ(listener_->accept(now + kPeerDeadline).error().code, Errc::kTimeout);
}

// After an error the listener takes another sender.
TEST_F(PairingReceiver, TakesAnotherSenderAfterOneThatDidWrong) {
  be_answered();
  say_word(wire::Paired{});
  expect_error(Errc::kUnexpectedMessage, "not a PAIR");
  error_.reset();
  call(0);
  EXPECT_EQ(hear<wire::StreamAnswer>().code, Errc::kOk);
  expect_way("streams over TCP: the sender offers no RDMA");
}

Bytes frame_of(wire::FrameHeader header, Bytes body) {
  header.length = static_cast<uint32_t>(body.size());
  Bytes bytes(wire::kHeaderBytes);
  wire::encode_header(header, {}, wire::HeaderBytes(bytes.data(), wire::kHeaderBytes));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

struct WrongWord {
  const char* name;
  Bytes bytes;
  Errc reason;
};

// In place of a word of type `type`.
std::vector<WrongWord> wrong_words(wire::FrameType type) {
  std::vector<WrongWord> all;
  all.push_back({"answer", wire::encode_message(wire::StreamAnswer{}), Errc::kUnexpectedMessage});
  all.push_back({"grant", frame_of({.type = wire::FrameType::kGrant}, {}), Errc::kUnexpectedMessage});
  all.push_back({"no frame", Bytes(wire::kHeaderBytes, std::byte{'x'}), Errc::kBadMagic});
  all.push_back({"empty", frame_of({.type = type}, {}), Errc::kBadLength});
  all.push_back({"cut", frame_of({.type = type}, {std::byte{8}, std::byte{0}}), Errc::kBadLength});
  all.push_back({"longer than any", frame_of({.type = type}, Bytes(kMostWordBytes)), Errc::kBadLength});
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

TEST_F(PairingReceiver, AnyOtherWordEndsIt) {
  for (const WrongWord& wrong : wrong_words(wire::FrameType::kPair)) {
    SCOPED_TRACE(wrong.name);
    be_answered();
    say(wrong.bytes);
    expect_error(wrong.reason, "not a PAIR: ");
  }
  for (const WrongWord& wrong : wrong_words(wire::FrameType::kPaired)) {
    SCOPED_TRACE(wrong.name);
    be_answered_twice();
    say(wrong.bytes);
    expect_error(wrong.reason, "not a PAIRED: ");
  }
}

TEST_F(PairingReceiver, ASenderThatIsGoneEndsIt) {
  be_answered();
  socket_ = {};
  expect_error(Errc::kClosed, "connection ended while a queue pair was agreed on");
}

// A sender of ours.
class PairingSender : public OneEnd {
 protected:
  void start(StreamTerms terms, uint64_t features) {
    terms_ = std::move(terms);
    error_.reset();
    greeted_.reset();
    auto listening = transport::tcp::listen_on("127.0.0.1", 0, {});
    ASSERT_TRUE(listening);
    listening_ = std::move(*listening);
    Invitation invitation{.features = features};
    socklen_t size = sizeof invitation.address;
    ASSERT_EQ(::getsockname(listening_.fd(), reinterpret_cast<sockaddr*>(&invitation.address), &size), 0);
    write_invitation(invitation, memory_.handle());
    auto started =
        Connector::start(*read_invitation(memory_.handle()), "127.0.0.1", 1, terms_, monotonic_now());
    if (!started) {
      error_ = started.error();
      return;
    }
    connector_ = std::move(*started);
    run([this](Nanos now) { return connector_->progress(now); });
    ASSERT_TRUE(until([&] {
      turn();
      socket_ = Socket(::accept4(listening_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      return socket_.valid();
    }));
  }
  void answer(Errc code = Errc::kOk) {
    say_word(wire::StreamAnswer{.code = code, .version = wire::kVersionMax, .count = 1});
  }
  // Up to where the receiver's PAIR comes next.
  wire::Pair greet(StreamTerms terms) {
    start(std::move(terms), wire::kStreamRdma);
    (void)hear_frame();
    answer();
    return hear<wire::Pair>();
  }
  StreamTerms terms_;
  Socket listening_;
  std::unique_ptr<Connector> connector_;
};

TEST_F(PairingSender, SaysToWhoKnowsNoneOfItWhatItKnows) {
  for (const uint64_t features : {uint64_t{0}, ~kBoth}) {
    start(wanted(), features);
    wire::StreamOffer offer;
    const Bytes frame = hear_frame();
    EXPECT_EQ(static_cast<wire::FrameType>(frame[5]), wire::FrameType::kStream);
    EXPECT_TRUE(decode_opening(frame, offer).ok());
    answer();
    expect_way("streams over TCP: the receiver offers no RDMA");
  }
}

TEST_F(PairingSender, OffersItsFeatures) {
  for (const bool alone : {false, true}) {
    start(wanted(alone), wire::kStreamRdma);
    wire::StreamOffer offer;
    ASSERT_TRUE(decode_opening(hear_frame(), offer).ok());
    EXPECT_EQ(offer.features, alone ? kBoth : wire::kStreamRdma);
  }
}

TEST_F(PairingSender, WithoutADeviceGoesOverTcpAndTells) {
  EXPECT_FALSE(greet(without_device()).why.empty());
  say_word(wire::Pair{.address = std::vector<uint8_t>(40, 7), .why = {}});
  const auto paired = hear<wire::Paired>();
  EXPECT_EQ(paired.ready, 0);
  expect_way("streams over TCP: " + paired.why);
}

TEST_F(PairingSender, ReceiversAddressThatIsNoneGoesOverTcp) {
  const bool offered = !greet(wanted()).address.empty();
  say_word(wire::Pair{.address = std::vector<uint8_t>(40, 7), .why = {}});
  const auto paired = hear<wire::Paired>();
  EXPECT_EQ(paired.ready, 0);
  if (offered) {
    EXPECT_EQ(paired.why, "not the address of a queue pair");
  }
  expect_way("streams over TCP: " + paired.why);
}

TEST_F(PairingSender, WhereItTakesRdmaAloneItSaysWhy) {
  start(wanted(true), 0);
  ASSERT_TRUE(error_);
  EXPECT_NE(error_->text.find("nothing else is allowed: the receiver offers none"), std::string::npos);

  EXPECT_FALSE(greet(without_device(true)).why.empty());
  say_word(wire::Pair{.address = {}, .why = "none"});
  EXPECT_EQ(hear<wire::Paired>().ready, 0);
  expect_error(Errc::kUnsupported, "no RDMA for a stream, and nothing else is allowed: ");
}

TEST_F(PairingSender, WhereTheReceiverTakesRdmaAloneItSaysSo) {
  start(tcp_terms(), kBoth);
  (void)hear_frame();
  answer(Errc::kMismatch);
  expect_error(Errc::kMismatch, "it takes streams over RDMA alone");
}

TEST_F(PairingSender, AnyOtherWordEndsIt) {
  for (const WrongWord& wrong : wrong_words(wire::FrameType::kPair)) {
    SCOPED_TRACE(wrong.name);
    (void)greet(wanted());
    say(wrong.bytes);
    expect_error(wrong.reason, "not a PAIR: ");
  }
}

TEST_F(PairingSender, SilenceEndsAtItsDeadline) {
  (void)greet(wanted());
  const Nanos now = monotonic_now();
  EXPECT_EQ(connector_->progress(now + kPeerDeadline - kSecond).error().code, Errc::kWouldBlock);
  EXPECT_EQ(connector_->progress(now + kPeerDeadline).error().code, Errc::kTimeout);
  EXPECT_FALSE(connector_->forgotten(now + kPeerDeadline));
}

// Both ends ours.
struct BothEnds {
  BothEnds(const StreamTerms& sender, const StreamTerms& receiver, const std::string& from = "127.0.0.1",
           const std::string& to = "127.0.0.1") {
    auto listener = Listener::open(to, receiver, memory.handle());
    auto connector = Connector::start(*read_invitation(memory.handle()), from, 4, sender, monotonic_now());
    EXPECT_TRUE(listener && connector);
    const auto goes_on = [](const std::optional<Result<GreetedStreams>>& end) {
      return !end || (!*end && end->error().code == Errc::kWouldBlock);
    };
    EXPECT_TRUE(until([&] {
      if (goes_on(sending)) sending.emplace((*connector)->progress(monotonic_now()));
      if (goes_on(receiving)) receiving.emplace((*listener)->accept(monotonic_now()));
      return !goes_on(sending) && !goes_on(receiving);
    }));
  }
  HandleMemory memory;
  std::optional<Result<GreetedStreams>> sending;
  std::optional<Result<GreetedStreams>> receiving;
};

TEST(NetPairing, WhereOneHasNoDeviceBothGoOverTcpAndSayWhy) {
  const StreamTerms none = without_device();
  const StreamTerms some = wanted();
  BothEnds ends(none, some);
  ASSERT_TRUE(*ends.sending && *ends.receiving);
  const std::string why = (*ends.sending)->way;
  EXPECT_EQ(why.find("streams over TCP: "), 0u) << why;
  EXPECT_NE((*ends.receiving)->way.find("there: " + why.substr(std::string("streams over TCP: ").size())),
            std::string::npos)
      << (*ends.receiving)->way;
}

TEST(NetPairing, WhereOneTakesRdmaAloneBothFailAndSayWhy) {
  const StreamTerms none = without_device();
  const StreamTerms alone = wanted(true);
  for (const bool sender : {true, false}) {
    SCOPED_TRACE(sender);
    BothEnds ends(sender ? alone : none, sender ? none : alone);
    ASSERT_FALSE(*ends.sending || *ends.receiving);
    EXPECT_EQ(ends.sending->error().code, Errc::kUnsupported);
    EXPECT_EQ(ends.receiving->error().code, Errc::kUnsupported);
  }
}

// Devices that tests may use: in a guest of guest.sh.
TEST(NetPairing, WhereNothingComesThroughItGoesOverTcp) {
  if (std::getenv("SLUICE_TEST_RDMA") == nullptr)
    GTEST_SKIP() << "left out: rdma/two_rails runs it in its guest";
  const StreamTerms some = wanted();
  BothEnds ends(some, some, "10.77.0.1", "10.77.1.2");
  ASSERT_TRUE(*ends.sending && *ends.receiving);
  EXPECT_EQ((*ends.sending)->way, "streams over TCP: nothing comes through on the queue pair: timeout");
  EXPECT_EQ((*ends.receiving)->way,
            "streams over TCP: there: nothing comes through on the queue pair: timeout");
  for (const Socket& s : (*ends.sending)->sockets) EXPECT_FALSE(s.accompanied());
}

}  // namespace
}  // namespace sluice::nccl::test
