// A control connection once its handshake is over: whole frames in, whole frames out, never blocking. Cold
// path. Nothing a peer sends is trusted: types, lengths and CRCs are checked before a frame is handed on, and
// memory is bounded by one frame each way.
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

class ControlLink {
 public:
  struct Frame {
    wire::FrameHeader header;
    std::span<const std::byte> body;  // valid until the next receive()
  };

  // `name`: the reducer, for messages. `handle`: the session's name there, in every frame sent.
  ControlLink(transport::tcp::Socket socket, std::string name, uint32_t handle);

  // kOk with the next frame; kWouldBlock when none is complete; kClosed, kReset; or what is wrong with the
  // bytes. After anything but kOk and kWouldBlock the connection is of no use.
  [[nodiscard]] Status receive(Frame& out);

  // Sends at once as far as the socket takes it and keeps the rest. kWouldBlock, with nothing taken, when
  // much is kept already.
  template <typename M>
  Status send(const M& message) {
    return send_bytes(wire::encode_message(message, handle_));
  }
  // Sends what was kept.
  Status flush();
  [[nodiscard]] bool has_unsent() const noexcept { return !unsent_.empty(); }

  // True when receive() may have a frame that no event of the descriptor will announce. Only one that was not
  // asked until kWouldBlock since then has.
  [[nodiscard]] bool pending() const noexcept { return socket_.pending(); }

  // Tells the peer that nothing more comes. The peer's frames can still be received.
  void shutdown() noexcept;
  // Ends it both ways: what was kept is dropped, sending and receiving give kReset.
  void close() noexcept;

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  static constexpr size_t kMaxFrame =
      wire::kHeaderBytes + transport::kMaxExtensions + wire::kMaxControlPayload;
  // Heartbeats, a few words on a view change, one ABORT are all that is ever sent: a peer that leaves this
  // much unread is not worth more memory.
  static constexpr size_t kMaxUnsent = 64 * kKiB;

  [[nodiscard]] Status send_bytes(std::vector<std::byte> bytes);
  // Bytes of the frame that are known to belong to it so far: header, then extensions, then payload.
  [[nodiscard]] Status grow_target();

  transport::tcp::Socket socket_;
  std::string name_;
  uint32_t handle_;
  std::vector<std::byte> in_;  // kMaxFrame
  size_t have_ = 0;            // bytes of in_ received
  size_t target_ = wire::kHeaderBytes;
  wire::FrameHeader header_;
  bool header_known_ = false;
  std::vector<std::byte> unsent_;
};

}  // namespace sluice::engine
