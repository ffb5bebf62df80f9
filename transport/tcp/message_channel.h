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

// How long the peer may take for a body.
struct BodyLimits {
  Nanos frame = 10 * kSecond;  // each frame
  Nanos time = 0;              // all frames together: this time, and their bytes at the rate; 0: no limit
  uint64_t slowest_rate = 1;   // bytes/s
};

class MessageChannel {
 public:
  // `interrupt_fd`: see Deadline.
  explicit MessageChannel(Socket socket, int interrupt_fd = -1, BodyLimits limits = {}) noexcept
      : socket_(std::move(socket)), interrupt_fd_(interrupt_fd), limits_(limits) {}

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
  // Waits until the peer takes bytes, so that a message has room.
  [[nodiscard]] Status wait_writable(Nanos deadline) const;
  // Receives one control frame. Errors of a malformed frame too; MODEL_DATA is kUnexpectedMessage.
  [[nodiscard]] Status receive(Nanos deadline);
  [[nodiscard]] wire::FrameType type() const noexcept { return header_.type; }
  // Decodes the frame that receive() has received; kUnexpectedMessage if it is no M.
  template <typename M>
  [[nodiscard]] Status decode(M& message) const {
    if (header_.type != M::kType) return Errc::kUnexpectedMessage;
    return wire::decode_body(std::span<const std::byte>(body_), message);
  }

  // Sends or receives a body of this size, within the limits: kTimeout. kAborted: the peer has sent FAILED in
  // place of the next frame, which decode() decodes. `needed`, if not null, is called before each frame with
  // the bytes up to its end; it may wait for them, or fail.
  using Needed = std::function<Status(uint64_t bytes)>;
  // `stalled`, if not null, is called several times a second while the peer takes nothing. `body` may change
  // from then on if it fails: the frame in work has been copied, and is completed before its error is
  // returned.
  using Stalled = std::function<Status()>;
  [[nodiscard]] Status send_body(std::span<const std::byte> body, const Needed& needed = nullptr,
                                 const Stalled& stalled = nullptr);
  // `arrived`, if not null, is called with the bytes that are there, after each frame.
  using Arrived = std::function<void(uint64_t bytes)>;
  [[nodiscard]] Status receive_body(std::span<std::byte> body, const Arrived& arrived = nullptr);

  // The same in pieces of wire::kModelDataBytes, the last one shorter. `fill` writes a piece that begins at
  // `offset`, or fails; `use` reads it, and may refuse it. The buffer belongs to the channel.
  using Fill = std::function<Status(uint64_t offset, std::span<std::byte> piece)>;
  using Use = std::function<Status(uint64_t offset, std::span<const std::byte> piece)>;
  [[nodiscard]] Status send_pieces(uint64_t bytes, const Fill& fill, const Stalled& stalled = nullptr);
  [[nodiscard]] Status receive_pieces(uint64_t bytes, const Use& use);
  // Frees buffers, which later calls allocate again: for a connection that is idle.
  void release_buffers() noexcept;

 private:
  void begin_body(uint64_t bytes) noexcept;
  // When the next frame of the body must be complete.
  [[nodiscard]] Nanos frame_deadline(Nanos now) const noexcept;
  template <typename Each>
  [[nodiscard]] Status for_pieces(uint64_t bytes, const Each& each);
  [[nodiscard]] Status send_piece(uint64_t offset, std::span<const std::byte> piece, const Stalled& stalled);
  [[nodiscard]] Status send_rest(std::span<const std::byte> header, std::span<const std::byte> piece,
                                 const Deadline& until, const Stalled& stalled);
  [[nodiscard]] Status receive_message_body(const Deadline& until);
  // The header of a frame of a body.
  [[nodiscard]] Status receive_piece_header(uint64_t offset, size_t bytes, const Deadline& until);
  [[nodiscard]] Status check_piece(std::span<const std::byte> piece) const;
  [[nodiscard]] Status receive_piece(uint64_t offset, std::span<std::byte> piece);
  // Into piece_, which grows with what arrives.
  [[nodiscard]] Status receive_growing(uint64_t offset, size_t bytes);
  // A header that is correct but for the rules of the message; extensions are ignored.
  [[nodiscard]] Status receive_header(const Deadline& until);

  Socket socket_;
  int interrupt_fd_;
  BodyLimits limits_;
  Nanos body_left_ = 0;  // of the limit of the body in work, which waits of the callbacks do not use
  wire::FrameHeader header_;
  std::vector<std::byte> body_;
  std::vector<std::byte> piece_;
  std::vector<std::byte> unsent_;  // of a frame that the peer does not take
};

}  // namespace sluice::transport::tcp
