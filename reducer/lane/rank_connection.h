// Class RankConnection receives the frames of one rank on one lane of a session for LaneSession.
//
// It checks what needs no session state and passes the rest on. In a fault-tolerant session one object serves
// the rank's successive connections. Lane thread only, except down_since_ and path_.
#pragma once

#include <array>
#include <atomic>

#include "core/ids.h"
#include "transport/loss_detector.h"
#include "transport/path_monitor.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::reducer {

class LaneSession;

// A view as a lane knows it. Ranks announce it in-band, so the control loop sends lanes no views
// (protocol.md section 11).
struct LaneView {
  uint16_t version = 0;
  uint32_t hash = 0;  // low half, as frame headers carry it
  uint64_t base_chunk = 0;
  friend bool operator==(const LaneView&, const LaneView&) = default;
};

class RankConnection final : public transport::Handler {
 public:
  RankConnection(LaneSession& session, Rank rank, const LaneView& view) noexcept
      : session_(session), rank_(rank), view_(view) {}
  RankConnection(const RankConnection&) = delete;
  RankConnection& operator=(const RankConnection&) = delete;
  ~RankConnection() = default;

  transport::ReceiveTarget on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                     std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::ExpectedFrame expected_frame(transport::Endpoint& ep, unsigned ahead) noexcept override;
  transport::RemoteBuffer advertise(transport::Endpoint& ep) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  friend class LaneSession;
  // kAttached: the first frame, COMMIT or RESUME, has not arrived. kClosed: the control loop is to be told.
  //
  //   kAbsent, kClosed, kReported  attach()                -> kAttached   no end is reported of a connection
  //   kAttached                    COMMIT, RESUME          -> kCommitted  that was replaced in its turn
  //   kAttached, kCommitted        on_closed()             -> kClosed
  //   kAbsent, kClosed, kReported  attach_failed()         -> kClosed
  //   kClosed                      the event is in the ring -> kReported
  enum class State : uint8_t { kAbsent, kAttached, kCommitted, kClosed, kReported };
  // What the rank contributes.
  //
  //   kAll      rank_left()              -> kNothing
  //   kNothing  it enters another view   -> kRepeats   what it has contributed in the view before
  //   kRepeats  rank_left()              -> kNothing
  enum class Part : uint8_t { kAll, kNothing, kRepeats };
  // kTolerated -> kExceeded: connections close by bad frames too often. -> kReported: the event is in the
  // ring.
  enum class BadFrames : uint8_t { kTolerated, kExceeded, kReported };

  // Adds what the endpoint has counted since the last call to the lane's counters. False: nothing.
  bool add_counters() noexcept;
  // Samples what the network does, unless nothing has moved and all was acknowledged: false.
  [[nodiscard]] bool sample_path(Nanos now) noexcept;
  void drop_next_socket() noexcept { next_socket_ = transport::tcp::Socket(); }
  [[nodiscard]] bool has_left_session() const noexcept { return part_ != Part::kAll; }
  // Counts a close by a bad frame. True: there were so many that a new connection will not help.
  [[nodiscard]] bool exceeds_bad_frame_limit(Errc reason) noexcept;

  LaneSession& session_;
  const Rank rank_;
  State state_ = State::kAbsent;
  Nanos attached_at_ = 0;
  bool committed_ = false;  // stays set: later connections start with RESUME instead of COMMIT
  LaneView view_;           // older than the session's view: contributions are dropped
  Part part_ = Part::kAll;
  BadFrames bad_frames_ = BadFrames::kTolerated;
  Errc close_reason_ = Errc::kOk;
  transport::Endpoint* endpoint_ = nullptr;
  transport::tcp::Socket next_socket_;  // attached once endpoint_, which is closing, has closed
  uint32_t bad_frame_closes_ = 0;       // closes by bad frames, fewer than kGoodFrames frames apart
  uint32_t good_frames_ = 0;            // since the last of those closes, saturated
  uint64_t next_contribution_ = 0;      // next expected sequence in view_
  // Of the contribution before it. Length 0: the next one cannot be predicted.
  uint32_t last_length_ = 0;
  uint32_t last_extension_bytes_ = 0;
  // Results of view_ that were put on this connection or that the rank holds: the credit for sequence
  // results_put_ + W - 1.
  uint64_t results_put_ = 0;
  uint64_t next_advertised_ = 0;      // next sequence in view_ whose slot is to be advertised
  uint32_t pending_puts_ = 0;         // results of any view whose memory the transport still uses
  std::atomic<Nanos> down_since_{0};  // read by any thread
  transport::EndpointCounters counted_;
  bool has_unsampled_ = true;  // something may have moved since the last sample of path_
  transport::LossDetector loss_detector_;
  transport::PathMonitor path_;                 // report() by any thread
  std::array<std::byte, 40> control_body_{};    // COMMIT, RESUME or VIEW_COMMIT
  std::array<std::byte, 8> resume_ack_body_{};  // RESUME_ACK
};

}  // namespace sluice::reducer
