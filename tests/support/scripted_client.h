// A client that does by hand what PROTOCOL.md says, one frame at a time, over blocking sockets: for tests of
// what a reducer answers, independent of the engine. Every wait has a deadline.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "transport/tcp/socket.h"
#include "wire/handshake.h"
#include "wire/messages.h"

namespace sluice::test {

struct ReceivedFrame {
  wire::FrameHeader header;
  std::vector<std::byte> extensions;
  std::vector<std::byte> payload;
};

// One connection.
class ScriptedConnection {
 public:
  explicit ScriptedConnection(uint16_t port);
  // Of one that was accepted.
  explicit ScriptedConnection(transport::tcp::Socket socket) : socket_(std::move(socket)) {}

  void send_bytes(std::span<const std::byte> bytes);
  void send_text(std::string_view text);
  template <typename M>
  void send(const M& message, uint32_t session = 0) {
    send_bytes(wire::encode_message(message, session));
  }
  // The next frame, CRCs checked; nothing at the end of the stream. Fails the test at the deadline.
  [[nodiscard]] std::optional<ReceivedFrame> receive(Nanos within = 10 * kSecond);
  // The next frame that is of this type, skipping heartbeats; fails the test when something else comes.
  template <typename M>
  [[nodiscard]] M expect(Nanos within = 10 * kSecond);
  // True when the reducer closes within the time; frames before that are skipped.
  [[nodiscard]] bool closed_within(Nanos within);
  void close() { socket_ = transport::tcp::Socket(); }
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }

  // HELLO and WELCOME.
  const wire::Welcome& greet(const wire::Hello& hello);
  [[nodiscard]] wire::Mac proof(const wire::Digest& token, uint64_t view_hash) const {
    return wire::client_proof(token, hello_, welcome_, view_hash);
  }

 private:
  transport::tcp::Socket socket_;
  wire::Hello hello_;
  wire::Welcome welcome_;
};

// One rank of a session at one reducer.
class ScriptedMember {
 public:
  struct Shape {
    SessionId session{};
    uint32_t rank = 0;
    uint32_t ranks = 1;
    uint16_t lanes = 1;
    uint32_t window_bytes = 64 * kKiB;
    uint32_t slot_bytes = 16 * kKiB;
    uint64_t view_hash = 42;
    uint32_t join_timeout_ms = 5000;
    std::vector<uint64_t> more_reducers{};    // after this one
    std::vector<uint64_t> reducers_before{};  // then this one is not the arbiter
    uint64_t features = 0;
    uint64_t incarnation = 0;  // of a session that runs already, elsewhere
    std::optional<wire::Digest> token{};
    std::string job{};
    std::string tenant{};
  };

  ScriptedMember(uint16_t port, Shape shape);

  // HELLO, WELCOME, JOIN; what comes back is the caller's to read.
  void join();
  void expect_joined();
  void attach();
  // HELLO and ATTACH of one lane connection; the answer is the caller's to read.
  ScriptedConnection ask_for_lane(uint16_t lane);
  void vote_yes();
  void commit();                         // waits for the verdict
  void commit_as(uint64_t incarnation);  // as an arbiter elsewhere said
  // Opens the control connection again, in place of the old one, which is returned as it is.
  ScriptedConnection ask_to_resume();
  ScriptedConnection resume();
  void contribute(uint64_t sequence, const std::vector<float>& values, uint16_t lane = 0);
  [[nodiscard]] std::vector<float> result(uint64_t sequence, uint16_t lane = 0);
  void leave();  // and waits for LEAVE_ACK

  ScriptedConnection control;
  std::vector<ScriptedConnection> lanes;
  wire::Joined joined;
  uint64_t incarnation = 0;

 private:
  [[nodiscard]] wire::Hello hello(wire::Purpose purpose, uint32_t lane) const;
  void ask(ScriptedConnection& c, wire::Purpose purpose, uint16_t lane) const;
  const uint16_t port_;
  const Shape shape_;
};

// All ranks of a session through join, vote and commit. Where the reducer is not the arbiter, the verdict is
// kElsewhere.
inline constexpr uint64_t kElsewhere = 0x1234567890;
[[nodiscard]] std::vector<ScriptedMember> begin_session(uint16_t port, const ScriptedMember::Shape& shape);
// One reduction on lane 0 whose sums are checked.
void expect_sums(std::vector<ScriptedMember>& ranks, uint64_t sequence);
[[nodiscard]] SessionId session_id(uint8_t tag);

template <typename M>
M ScriptedConnection::expect(Nanos within) {
  M message;
  for (;;) {
    const auto frame = receive(within);
    if (!frame)
      throw std::runtime_error(std::string("closed while waiting for ") + wire::to_string(M::kType));
    if (frame->header.type == wire::FrameType::kHeartbeat && M::kType != wire::FrameType::kHeartbeat)
      continue;
    if (frame->header.type != M::kType) {
      std::string what = wire::to_string(frame->header.type);
      wire::Refused ending;
      if (wire::decode_body(std::span<const std::byte>(frame->payload), ending).ok())
        what += ": " + ending.text;
      throw std::runtime_error("wanted " + std::string(wire::to_string(M::kType)) + ", got " + what);
    }
    if (!wire::decode_body(std::span<const std::byte>(frame->payload), message).ok())
      throw std::runtime_error("bad body");
    return message;
  }
}

}  // namespace sluice::test
