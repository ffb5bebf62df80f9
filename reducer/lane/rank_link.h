// One rank's connection to one lane of its session, or in a surviving session the connections it has one
// after the other: checks what needs the session, hands the rest to LaneSession.
#pragma once

#include <array>
#include <atomic>

#include "core/ids.h"
#include "transport/loss_watch.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::reducer {

class LaneSession;

// A view as a lane knows it: what ranks tell, for it has no word of the conductor's (PROTOCOL.md section 11).
struct LaneView {
  uint16_t version = 0;
  uint32_t hash = 0;  // low half, as headers carry it
  uint64_t base_chunk = 0;
  friend bool operator==(const LaneView&, const LaneView&) = default;
};

class RankLink final : public transport::Handler {
 public:
  RankLink(LaneSession& session, Rank rank, const LaneView& view) noexcept
      : session_(session), rank_(rank), view_(view) {}
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;
  ~RankLink() = default;

  transport::Placement on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                 std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::Forecast forecast(transport::Endpoint& ep, unsigned ahead) noexcept override;
  transport::Loan lend(transport::Endpoint& ep) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  friend class LaneSession;
  // kAttached: the first frame, COMMIT or RESUME, has not come.
  enum class State : uint8_t { kAbsent, kAttached, kCommitted, kClosed };

  // Counters of the endpoint already added to the lane's.
  void account() noexcept;
  void drop_waiting() noexcept { waiting_ = transport::tcp::Socket(); }
  // True when the connection that closes with `reason` shows that the path to this rank, or the rank, can't
  // be mended.
  [[nodiscard]] bool beyond_mending(Errc reason) noexcept;

  LaneSession& session_;
  const Rank rank_;
  State state_ = State::kAbsent;
  Nanos attached_at_ = 0;
  bool committed_ = false;  // once: from then on its connections begin with RESUME
  LaneView view_;           // not the session's: behind, and what it contributes is dropped
  bool said_leave_ = false;
  bool left_ = false;  // contributes no more in this view; in the next one, what it has
  bool close_reported_ = false;
  bool unfit_ = false;  // its connections break over and over by bad frames
  bool unfit_reported_ = false;
  Errc close_reason_ = Errc::kOk;
  transport::Endpoint* endpoint_ = nullptr;
  transport::tcp::Socket waiting_;  // taken over when endpoint_, which is closing, is gone
  uint32_t bad_closes_ = 0;         // by bad frames, without kGoodFrames between one and the next
  uint32_t good_frames_ = 0;        // since the last of them, saturated
  uint64_t next_contribution_ = 0;  // sequence expected next, in view_
  uint32_t last_length_ = 0;        // of the contribution before it
  uint64_t results_put_ = 0;  // results of view_ put on this connection, or held by the rank: the credit for
                              // sequence results_put_ + W - 1
  uint64_t next_lent_ = 0;    // sequence in view_ whose slot is to be lent next
  uint32_t puts_ = 0;         // of results, of any view, that the transport has not given back
  std::atomic<Nanos> down_since_{0};  // any thread reads
  transport::EndpointCounters accounted_;
  transport::LossWatch loss_watch_;
  std::array<std::byte, 40> control_{};      // body of COMMIT, RESUME or VIEW_COMMIT
  std::array<std::byte, 8> acknowledged_{};  // body of RESUME_ACK
};

}  // namespace sluice::reducer
