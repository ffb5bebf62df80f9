#include "reducer/lane/rank_link.h"

#include <algorithm>

#include "reducer/lane/lane_session.h"
#include "wire/extension.h"

namespace sluice::reducer {

namespace {
// Cookie of the ABORT put at an end; results use their sequence.
constexpr transport::Cookie kAbortCookie = ~transport::Cookie{0};
}  // namespace

transport::Placement RankLink::on_header(transport::Endpoint& /*ep*/, const wire::FrameHeader& header,
                                         std::span<const std::byte> /*extensions*/) noexcept {
  if (header.type == wire::FrameType::kContribution) {
    std::byte* place = nullptr;
    const Status status = session_.admit(*this, header, place);
    return {.status = status, .payload = place};
  }
  if (header.type == wire::FrameType::kCommit && state_ == State::kAttached) {
    if (header.length > control_.size()) return {.status = Errc::kBadLength};
    return {.status = Errc::kOk, .payload = control_.data()};
  }
  return {.status = Errc::kUnexpectedMessage};
}

void RankLink::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                        std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (header.type == wire::FrameType::kContribution) {
    session_.contributed(*this, header, extensions);
  } else if (const Status status = session_.commit(*this, payload); !status.ok()) {
    ep.close(status.code());
  }
}

// Most operations have many chunks, all but the last of one length.
transport::Forecast RankLink::forecast(transport::Endpoint& /*ep*/, unsigned ahead) noexcept {
  const uint64_t sequence = next_contribution_ + ahead;
  if (last_length_ == 0 || !session_.may_contribute(*this, sequence)) return {};
  return {.payload = session_.place_of(*this, sequence),
          .length = last_length_,
          .extension_bytes = wire::kSmallExtensionBytes};
}

void RankLink::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie, Status status) noexcept {
  if (cookie != kAbortCookie) session_.result_sent(*this, status);
}

void RankLink::on_closed(transport::Endpoint& /*ep*/, Errc reason) noexcept {
  account();
  endpoint_ = nullptr;
  state_ = State::kClosed;
  close_reason_ = reason;
  down_since_.store(std::max<Nanos>(session_.now_, 1), std::memory_order_relaxed);
  session_.link_closed(reason);
}

void RankLink::account() noexcept {
  const transport::EndpointCounters& c = endpoint_->counters();
  LaneCounters& lane = *session_.counters_;
  lane.frames_in.add(c.frames_in - accounted_.frames_in);
  lane.frames_out.add(c.frames_out - accounted_.frames_out);
  lane.bytes_in.add(c.payload_bytes_in - accounted_.payload_bytes_in);
  lane.bytes_out.add(c.payload_bytes_out - accounted_.payload_bytes_out);
  lane.bytes_copied.add(c.bytes_copied - accounted_.bytes_copied);
  lane.receive_calls.add(c.receive_calls - accounted_.receive_calls);
  lane.send_calls.add(c.send_calls - accounted_.send_calls);
  accounted_ = c;
}

}  // namespace sluice::reducer
