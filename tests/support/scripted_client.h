// A client that follows protocol.md step by step over blocking sockets, independent of the engine.
//
// For tests of a reducer's replies. Every wait has a deadline.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/units.h"
#include "transport/tcp/socket.h"
#include "wire/handshake.h"
#include "wire/messages.h"

namespace sluice::test {

struct ReceivedFrame {
  wire::FrameHeader header;
  std::vector<std::byte> extensions;
  std::vector<std::byte> payload;
};

// Class ScriptedConnection is one connection to a reducer.
class ScriptedConnection {
 public:
  explicit ScriptedConnection(uint16_t port);
  // Wraps an accepted connection.
  explicit ScriptedConnection(transport::tcp::Socket socket) : socket_(std::move(socket)) {}

  void send_bytes(std::span<const std::byte> bytes);
  void send_text(std::string_view text);
  template <typename M>
  void send(const M& message, uint32_t session = 0) {
    send_bytes(wire::encode_message(message, session));
  }
  // The next frame, with its CRCs checked; nothing at the end of the stream. Throws at the deadline.
  [[nodiscard]] std::optional<ReceivedFrame> receive(Nanos within = 10 * kSecond);
  // The next frame, which must be of this type; skips heartbeats. Throws otherwise.
  template <typename M>
  [[nodiscard]] M expect(Nanos within = 10 * kSecond);
  // Whether the reducer closes within the time; earlier frames are skipped.
  [[nodiscard]] bool closed_within(Nanos within);
  void close() { socket_ = transport::tcp::Socket(); }
  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }

  // Exchanges HELLO and WELCOME.
  const wire::Welcome& handshake(const wire::Hello& hello);
  [[nodiscard]] wire::Mac proof(const wire::Digest& token, uint64_t view_hash) const {
    return wire::client_proof(token, hello_, welcome_, view_hash);
  }

 private:
  transport::tcp::Socket socket_;
  wire::Hello hello_;
  wire::Welcome welcome_;
};

// Class ScriptedMember is one rank of a session on one reducer.
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
    std::vector<uint64_t> reducers_after{};   // behind this one in the list
    std::vector<uint64_t> reducers_before{};  // if any, this one is not the arbiter
    uint64_t features = 0;
    uint64_t incarnation = 0;  // of a session that already runs on other reducers
    std::optional<wire::Digest> token{};
    bool sends_key_id = false;  // an earlier client does not
    std::string job{};
    std::string tenant{};
  };

  ScriptedMember(uint16_t port, Shape shape);

  // HELLO, WELCOME and JOIN. The caller reads the reply.
  void join();
  void expect_joined();
  void attach();
  // HELLO and ATTACH of one lane connection. The caller reads the reply.
  ScriptedConnection request_lane(uint16_t lane);
  void vote_yes();
  void commit();                         // waits for the verdict
  void commit_as(uint64_t incarnation);  // with the verdict of another reducer
  // Opens a new control connection and returns the old one, which stays open.
  ScriptedConnection request_resume();
  ScriptedConnection resume();
  void contribute(uint64_t sequence, const std::vector<float>& values, uint16_t lane = 0);
  [[nodiscard]] std::vector<float> result(uint64_t sequence, uint16_t lane = 0);
  void leave();  // waits for LEAVE_ACK

  ScriptedConnection control;
  std::vector<ScriptedConnection> lanes;
  wire::Joined joined;
  uint64_t incarnation = 0;

 private:
  [[nodiscard]] wire::Hello hello(wire::Purpose purpose, uint32_t lane) const;
  void request_attach(ScriptedConnection& c, wire::Purpose purpose, uint16_t lane) const;
  const uint16_t port_;
  const Shape shape_;
};

// Takes all ranks of a session through join, vote and commit. If the reducer is not the arbiter, the
// incarnation is kOtherIncarnation.
inline constexpr uint64_t kOtherIncarnation = 0x1234567890;
[[nodiscard]] std::vector<ScriptedMember> start_session(uint16_t port, const ScriptedMember::Shape& shape);
// Runs one reduction on lane 0 and checks the sums.
void expect_sums(std::vector<ScriptedMember>& ranks, uint64_t sequence);
[[nodiscard]] SessionId session_id(uint8_t tag);

template <typename M>
M ScriptedConnection::expect(Nanos within) {
  M message;
  for (;;) {
    const auto frame = receive(within);
    if (!frame)
      throw std::runtime_error(std::string("connection closed; expected ") + wire::to_string(M::kType));
    if (frame->header.type == wire::FrameType::kHeartbeat && M::kType != wire::FrameType::kHeartbeat)
      continue;
    if (frame->header.type != M::kType) {
      std::string received = wire::to_string(frame->header.type);
      wire::Refused refused;
      if (wire::decode_body(std::span<const std::byte>(frame->payload), refused).ok())
        received += ": " + refused.text;
      throw std::runtime_error(std::string("expected ") + wire::to_string(M::kType) + ", received " +
                               received);
    }
    if (!wire::decode_body(std::span<const std::byte>(frame->payload), message).ok())
      throw std::runtime_error(std::string("malformed body of ") + wire::to_string(M::kType));
    return message;
  }
}

}  // namespace sluice::test
