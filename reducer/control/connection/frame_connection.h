// Class FrameConnection reads and writes control frames on an accepted socket, and ends the connection in
// order.
//
// A derived class handles the frames. Control thread only. Handlers of pending reads and writes own the
// object.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "reducer/control/asio.h"
#include "reducer/control/connection/peer_socket.h"
#include "wire/messages.h"

namespace sluice::reducer {

class ControlLoop;

class FrameConnection : public std::enable_shared_from_this<FrameConnection> {
 public:
  FrameConnection(const FrameConnection&) = delete;
  FrameConnection& operator=(const FrameConnection&) = delete;
  virtual ~FrameConnection() = default;

  // Starts reading, with the handshake timeout as the deadline.
  void start();
  // Queues one frame; dropped when the connection is not open. The caller bounds how much may wait for a peer
  // that does not read: see is_backed_up().
  template <typename M>
  void send(const M& message) {
    send_frame(std::make_shared<const std::vector<std::byte>>(wire::encode_message(message, handle_)));
  }
  // Closes at once and counts the reason, e.g. a bad frame or a missed deadline.
  void close(Errc reason);
  // Closes after the queued frames are written and the peer has closed, or at the linger deadline.
  void finish();
  // Shortens the linger deadline of a connection that is finishing.
  void limit_linger(Nanos deadline) {
    if (phase_ == Phase::kFinishing) set_deadline(std::min(deadline_, deadline));
  }
  // Closes the connection if its deadline has passed. ControlLoop calls it at the time that next_check() has
  // returned, or perhaps earlier.
  virtual void check_deadline(Nanos now) = 0;
  // 0: there is nothing to check until set_deadline().
  [[nodiscard]] virtual Nanos next_check() const noexcept { return deadline_; }

  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  // Heartbeats and other repeated messages are skipped meanwhile. Messages that end a session are always
  // queued.
  [[nodiscard]] bool is_backed_up() const noexcept { return queued_bytes_ > kMaxQueued; }
  [[nodiscard]] bool is_finishing() const noexcept { return phase_ == Phase::kFinishing; }
  [[nodiscard]] bool is_closed() const noexcept { return phase_ == Phase::kClosed; }

 protected:
  FrameConnection(ControlLoop& loop, asio::ip::tcp::socket socket, std::string peer);

  // ---- overridden by the handler of the frames ----
  // A frame has arrived: header() and decode_or_close(). Exceptions close the connection.
  virtual void on_frame() = 0;
  // True if the connection reads another frame after on_frame().
  [[nodiscard]] virtual bool expects_frame() const noexcept = 0;
  // The write queue has become empty.
  virtual void on_all_written() = 0;
  // finish() or close() has begun.
  virtual void on_finishing() noexcept = 0;
  virtual void on_closing() noexcept = 0;
  // close() is complete; not called after finish().
  virtual void on_closed(Errc reason) = 0;

  // Queues a frame that several connections may share.
  void send_frame(std::shared_ptr<const std::vector<std::byte>> frame);
  [[nodiscard]] bool is_open() const noexcept { return phase_ == Phase::kOpen; }
  [[nodiscard]] bool has_unwritten_frames() const noexcept { return is_writing_; }
  [[nodiscard]] const wire::FrameHeader& header() const noexcept { return header_; }
  // Decodes the frame into `message`, or closes the connection and returns false, also if it is no M.
  template <typename M>
  [[nodiscard]] bool decode_or_close(M& message) {
    Status status = Errc::kUnexpectedMessage;
    if (header_.type == M::kType) status = wire::decode_body(std::span<const std::byte>(body_), message);
    if (!status.ok()) close(status.code());
    return status.ok();
  }
  void read_header();
  // 0: none.
  void set_deadline(Nanos deadline);
  [[nodiscard]] bool has_passed_deadline(Nanos now) const noexcept {
    return deadline_ != 0 && now >= deadline_;
  }
  // From now on there is no deadline between frames, but each frame must arrive within the frame timeout.
  void limit_each_frame() noexcept {
    deadline_ = 0;
    limits_each_frame_ = true;
  }
  void set_handle(uint32_t handle) noexcept { handle_ = handle; }
  [[nodiscard]] uint32_t handle() const noexcept { return handle_; }
  [[nodiscard]] PeerSocket& socket() noexcept { return socket_; }
  // Ends the connection without closing the socket, which the caller takes. Invalid if that fails.
  [[nodiscard]] transport::tcp::Socket release_socket();

  ControlLoop& loop_;

 private:
  enum class Phase : uint8_t { kOpen, kFinishing, kClosed };
  static constexpr size_t kMaxQueued = 64 * kKiB;

  void write_next();
  void on_written();
  void read_body();
  void handle_frame() noexcept;
  void drain_until_closed();
  void continue_draining(const boost::system::error_code& error);

  PeerSocket socket_;
  const std::string peer_;
  Phase phase_ = Phase::kOpen;
  Nanos deadline_ = 0;  // 0: none
  bool limits_each_frame_ = false;
  uint32_t handle_ = 0;

  std::array<std::byte, wire::kHeaderBytes> header_bytes_{};
  wire::FrameHeader header_;
  std::vector<std::byte> extensions_;
  std::vector<std::byte> body_;
  bool is_reading_ = false;

  std::deque<std::shared_ptr<const std::vector<std::byte>>> outgoing_;
  size_t queued_bytes_ = 0;
  bool is_writing_ = false;
};

}  // namespace sluice::reducer
