// Class ControlConnection sends and receives whole frames on a control connection after its handshake,
// without blocking. Peers are not trusted: types, lengths and CRCs are checked before a frame is returned,
// and memory is bounded by one frame to receive and kMaxUnsent bytes to send. Not for the data path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/messages.h"

namespace sluice::engine {

class ControlConnection {
 public:
  struct Frame {
    wire::FrameHeader header;
    std::span<const std::byte> body;  // valid until the next receive()
  };

  // `name` is the reducer's name in messages. `handle` is the session's handle at the reducer; every sent
  // frame carries it.
  ControlConnection(transport::tcp::Socket socket, std::string name, uint32_t handle);

  // Returns kOk with the next frame, kWouldBlock when no frame is complete, kClosed, kReset, or the error
  // of a malformed frame. After any result but kOk and kWouldBlock the connection is unusable.
  [[nodiscard]] Status receive(Frame& out);

  // Sends as many bytes as the socket accepts and keeps the rest. Returns kWouldBlock, without effect, when
  // too many bytes are unsent.
  template <typename M>
  Status send(const M& message) {
    return send_bytes(wire::encode_message(message, handle_));
  }
  // Sends the bytes that send() has kept.
  Status flush();
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

  // True when receive() may return a frame although no event of the descriptor announces it. Possible only
  // when receive() was not called until it returned kWouldBlock.
  [[nodiscard]] bool has_pending() const noexcept { return socket_.has_pending_bytes(); }

  // Closes the sending direction. The peer's frames can still be received.
  void shutdown() noexcept;
  // Closes both directions and drops unsent bytes. Later calls return kReset.
  void close() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static constexpr size_t kMaxFrame =
      wire::kHeaderBytes + transport::kMaxExtensionBytes + wire::kMaxControlPayload;
  // A rank sends heartbeats, a few messages for a view change and one ABORT. A reducer that does not read
  // this many bytes gets no more memory.
  static constexpr size_t kMaxUnsent = 64 * kKiB;

  [[nodiscard]] Status send_bytes(std::vector<std::byte> bytes);
  // Decodes what is complete, header or extensions, and raises target_ by the length that it announces.
  [[nodiscard]] Status grow_target();

  transport::tcp::Socket socket_;
  std::string name_;
  uint32_t handle_;
  std::vector<std::byte> in_;           // kMaxFrame
  size_t received_ = 0;                 // bytes of in_
  size_t target_ = wire::kHeaderBytes;  // bytes of the frame that are known to follow: first only the header
  wire::FrameHeader header_;
  bool header_known_ = false;
  std::vector<std::byte> unsent_;
};

}  // namespace sluice::engine
