// One rank's connection to one lane of its session: checks what needs the session, hands the rest to
// LaneSession.
#pragma once

#include <array>
#include <atomic>

#include "core/ids.h"
#include "transport/loss_watch.h"
#include "transport/transport.h"

namespace sluice::reducer {

class LaneSession;

class RankLink final : public transport::Handler {
 public:
  RankLink(LaneSession& session, Rank rank) noexcept : session_(session), rank_(rank) {}
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  transport::Placement on_header(transport::Endpoint& ep, const wire::FrameHeader& header,
                                 std::span<const std::byte> extensions) noexcept override;
  void on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept override;
  transport::Forecast forecast(transport::Endpoint& ep, unsigned ahead) noexcept override;
  void on_sent(transport::Endpoint& ep, transport::Cookie cookie, Status status) noexcept override;
  void on_closed(transport::Endpoint& ep, Errc reason) noexcept override;

 private:
  friend class LaneSession;
  enum class State : uint8_t { kAbsent, kAttached, kCommitted, kClosed };

  // Counters of the endpoint already added to the lane's.
  void account() noexcept;

  LaneSession& session_;
  const Rank rank_;
  State state_ = State::kAbsent;
  bool left_ = false;
  bool leave_done_ = false;
  bool leave_reported_ = false;
  bool close_reported_ = false;
  Errc close_reason_ = Errc::kOk;
  transport::Endpoint* endpoint_ = nullptr;
  uint64_t next_contribution_ = 0;  // sequence expected next
  uint32_t last_length_ = 0;        // of the contribution before it
  uint64_t results_sent_ = 0;  // results handed to the network: the credit for sequence results_sent_ + W - 1
  std::atomic<Nanos> down_since_{0};  // any thread reads
  transport::EndpointCounters accounted_;
  transport::LossWatch loss_watch_;
  std::array<std::byte, 16> control_{};  // body of COMMIT
};

}  // namespace sluice::reducer
