// One accepted connection while the conductor has it: the handshake, and after JOIN the rank's control
// connection. A lane connection leaves by its file descriptor once it is attached. Conductor thread only.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/units.h"
#include "reducer/control/asio.h"
#include "reducer/control/peer_socket.h"
#include "transport/rdma/pairing.h"
#include "wire/messages.h"
#include "wire/sha256.h"

namespace sluice::reducer {

class Conductor;
class Session;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Conductor& conductor, asio::ip::tcp::socket socket, std::string peer);

  void start();
  // Queues one frame; dropped once the connection is finishing or closed. How much may wait for a peer that
  // does not read is the caller's to bound: see backed_up().
  template <typename M>
  void send(const M& message) {
    send_frame(wire::encode_message(message, handle_));
  }
  // Bytes are wrong or a deadline passed: counts the reason, tells the session, closes at once.
  void close(Errc reason);
  // Closes once everything queued is written and the peer has closed, or at the linger deadline.
  void finish();
  // Another one takes its place: closes at once, and its session hears nothing of that.
  void supersede();
  // REFUSED with these words, then finish().
  void refuse(const Error& error, uint32_t rank = wire::kNoRank);

  // After this the connection tells `session` what arrives for `rank`.
  void bind(Session& session, uint32_t rank, uint32_t handle);

  // Any thread.
  [[nodiscard]] bool wants_pair() const noexcept { return wants_pair_.load(std::memory_order_relaxed); }
  // What became of Conductor::make_pair().
  void pair_made(Result<transport::rdma::PairOffer> made) noexcept;

  // Of a connection that is finishing: wait for its peer no longer than this.
  void end_by(Nanos deadline) noexcept {
    if (state_ == State::kFinishing) deadline_ = std::min(deadline_, deadline);
  }
  // Deadlines; called every tick.
  void check_deadline(Nanos now);

  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }
  // What a session repeats (heartbeats) is left out meanwhile; ends are always queued.
  [[nodiscard]] bool backed_up() const noexcept { return queued_bytes_ > kMaxQueued; }
  [[nodiscard]] bool finishing() const noexcept { return state_ == State::kFinishing; }
  [[nodiscard]] bool closed() const noexcept { return state_ == State::kClosed; }

 private:
  // kSecuring: WELCOME and the handshake of TLS; kPairing: a lane is attached, what it goes over is being
  // said.
  enum class State : uint8_t { kHello, kSecuring, kRequest, kPairing, kControl, kFinishing, kClosed };
  static constexpr size_t kMaxQueued = 64 * kKiB;

  void send_frame(std::vector<std::byte> frame);
  void write_next();
  void written();
  void read_header();
  void read_body();
  void on_frame();
  void act_on_frame() noexcept;
  void on_hello();
  void begin_tls();
  void on_request();
  void on_control();
  void on_loss_word();
  void on_attach();
  void on_pair();
  void on_paired();
  void drop_pair() noexcept;
  void take_pair(Result<transport::rdma::PairOffer> made);
  void go_without_pair(const std::string& why);
  void refuse_tcp(const std::string& why);
  void hand_over();
  void on_resume();
  // The session that an ATTACH is for; refuses, and returns nothing, where there is none or the peer proves
  // nothing.
  [[nodiscard]] Session* take_attach(wire::Attach& attach);
  [[nodiscard]] bool proven(const wire::Mac& mac, uint64_t view_hash) const;
  void drain_until_closed();
  void drain_further(const boost::system::error_code& error);

  // Decodes the body or closes; false when closed.
  template <typename M>
  [[nodiscard]] bool take(M& message) {
    const Status status = wire::decode_body(std::span<const std::byte>(body_), message);
    if (!status.ok()) close(status.code());
    return status.ok();
  }

  Conductor& conductor_;
  PeerSocket socket_;
  const std::string peer_;
  State state_ = State::kHello;
  Nanos deadline_ = 0;  // of the state, 0 = none
  Session* session_ = nullptr;
  uint32_t rank_ = wire::kNoRank;
  uint32_t handle_ = 0;

  std::array<std::byte, wire::kHeaderBytes> header_bytes_{};
  wire::FrameHeader header_;
  bool reading_ = false;  // a read of a frame is under way
  std::vector<std::byte> extensions_;
  std::vector<std::byte> body_;

  std::deque<std::vector<std::byte>> outgoing_;
  size_t queued_bytes_ = 0;
  bool writing_ = false;
  bool hand_over_ = false;               // lane connection: goes to its lane when what is queued is written
  bool making_pair_ = false;             // by another thread; nothing is read meanwhile
  std::atomic<bool> wants_pair_{false};  // what that thread looks at before it begins
  std::unique_ptr<transport::tcp::Companion> pair_;  // offered and joined; PAIRED has not come
  std::shared_ptr<void> pairing_;                    // its place among those

  wire::Hello hello_;
  wire::Welcome welcome_;
  std::optional<wire::Digest> token_;
};

}  // namespace sluice::reducer
