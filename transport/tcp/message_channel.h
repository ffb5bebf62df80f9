// Class MessageChannel exchanges control messages, and bodies in MODEL_DATA frames, on one connection
// (protocol.md section 16). Calls block until their deadline. One thread at a time.
//
// A body goes from the caller's memory to the socket and back without a copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/status.h"
#include "core/units.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/socket.h"
#include "wire/messages.h"

namespace sluice::transport::tcp {

class MessageChannel {
 public:
  // `interrupt_fd`: see Deadline. `stall` limits how long a body may make no progress.
  explicit MessageChannel(Socket socket, int interrupt_fd = -1, Nanos stall = 10 * kSecond) noexcept
      : socket_(std::move(socket)), interrupt_fd_(interrupt_fd), stall_(stall) {}

  [[nodiscard]] bool valid() const noexcept { return socket_.valid(); }
  [[nodiscard]] const Socket& socket() const noexcept { return socket_; }

  // kTimeout, kShutdown, kClosed, kReset. After an error the connection cannot be used.
  template <typename M>
  [[nodiscard]] Status send(const M& message, Nanos deadline) {
    const std::vector<std::byte> frame = wire::encode_message(message);
    return write_all(socket_, frame, {deadline, interrupt_fd_});
  }
  // Waits until a frame begins to arrive, or may have begun. After kTimeout the connection can be used.
  [[nodiscard]] Status wait(Nanos deadline) const;
  // Receives one control frame. Errors of a malformed frame too; MODEL_DATA is kUnexpectedMessage.
  [[nodiscard]] Status receive(Nanos deadline);
  [[nodiscard]] wire::FrameType type() const noexcept { return header_.type; }
  // Decodes the frame that receive() has received; kUnexpectedMessage if it is no M.
  template <typename M>
  [[nodiscard]] Status decode(M& message) const {
    if (header_.type != M::kType) return Errc::kUnexpectedMessage;
    return wire::decode_body(std::span<const std::byte>(body_), message);
  }

  // Sends or receives a body of this size. Each of its frames must be sent or arrive within the stall limit.
  // `needed`, if not null, is called before each frame with the bytes up to its end; it may wait for them, or
  // fail.
  using Needed = std::function<Status(uint64_t bytes)>;
  [[nodiscard]] Status send_body(std::span<const std::byte> body, const Needed& needed = nullptr);
  // `arrived`, if not null, is called with the bytes that are there, after each frame.
  using Arrived = std::function<void(uint64_t bytes)>;
  [[nodiscard]] Status receive_body(std::span<std::byte> body, const Arrived& arrived = nullptr);

  // The same in pieces of wire::kModelDataBytes, the last one shorter. `fill` writes a piece that begins at
  // `offset`, or fails; `use` reads it, and may refuse it. The buffer belongs to the channel.
  using Fill = std::function<Status(uint64_t offset, std::span<std::byte> piece)>;
  using Use = std::function<Status(uint64_t offset, std::span<const std::byte> piece)>;
  [[nodiscard]] Status send_pieces(uint64_t bytes, const Fill& fill);
  [[nodiscard]] Status receive_pieces(uint64_t bytes, const Use& use);

 private:
  [[nodiscard]] Status send_piece(uint64_t offset, std::span<const std::byte> piece);
  [[nodiscard]] Status receive_piece(uint64_t offset, std::span<std::byte> piece);
  // A header that is correct but for the rules of the message; extensions are ignored.
  [[nodiscard]] Status receive_header(const Deadline& until);

  Socket socket_;
  int interrupt_fd_;
  Nanos stall_;
  wire::FrameHeader header_;
  std::vector<std::byte> body_;
  std::vector<std::byte> piece_;
};

}  // namespace sluice::transport::tcp
