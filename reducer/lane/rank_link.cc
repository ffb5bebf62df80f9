#include "reducer/lane/rank_link.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "reducer/lane/lane_session.h"
#include "wire/extension.h"

namespace sluice::reducer {

namespace {
// Connections that break by bad frames over and over: PROTOCOL.md section 11, "Resume".
constexpr uint32_t kBadCloses = 16;
constexpr uint32_t kGoodFrames = 1024;

}  // namespace

transport::Placement RankLink::on_header(transport::Endpoint& /*ep*/, const wire::FrameHeader& header,
                                         std::span<const std::byte> /*extensions*/) noexcept {
  if (header.type == wire::FrameType::kContribution) {
    std::byte* place = nullptr;
    const Status status = session_.admit(*this, header, place);
    return {.status = status, .payload = place};
  }
  size_t most = 0;  // bytes of the body; what it decodes to has a length of its own
  switch (header.type) {
    case wire::FrameType::kCommit:
      if (state_ == State::kAttached && !committed_) most = 16;
      break;
    case wire::FrameType::kResume:
      if (state_ == State::kAttached && session_.plan_.survives) most = control_.size();
      break;
    case wire::FrameType::kViewCommit:
      if (state_ == State::kCommitted && session_.plan_.survives) most = control_.size();
      break;
    default: break;
  }
  if (most == 0) return {.status = Errc::kUnexpectedMessage};
  if (header.length > most) return {.status = Errc::kBadLength};
  return {.status = Errc::kOk, .payload = control_.data()};
}

void RankLink::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                        std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  good_frames_ = std::min(good_frames_ + 1, kGoodFrames);
  Status status;
  switch (header.type) {
    case wire::FrameType::kContribution: return session_.contributed(*this, header, extensions);
    case wire::FrameType::kResume: status = session_.resume(*this, payload); break;
    case wire::FrameType::kViewCommit: status = session_.view_commit(*this, payload); break;
    default: status = session_.commit(*this, payload); break;
  }
  if (!status.ok()) ep.close(status.code());
}

// Most operations have many chunks, all but the last of one length.
transport::Forecast RankLink::forecast(transport::Endpoint& /*ep*/, unsigned ahead) noexcept {
  const uint64_t sequence = next_contribution_ + ahead;
  if (last_length_ == 0 || !session_.may_contribute(*this, sequence)) return {};
  return {.payload = session_.place_of(*this, sequence),
          .length = last_length_,
          .extension_bytes = wire::kSmallExtensionBytes};
}

// As it may contribute: its slots are its own, so a frame of another view does no harm there.
transport::Loan RankLink::lend(transport::Endpoint& /*ep*/) noexcept {
  next_lent_ = std::max(next_lent_, next_contribution_);
  if (!session_.may_contribute(*this, next_lent_)) return {};
  const uint64_t sequence = next_lent_++;
  return {.place = session_.place_of(*this, sequence),
          .capacity = session_.plan_.slot_bytes,
          .view_version = view_.version,
          .sequence = sequence};
}

void RankLink::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie, Status /*status*/) noexcept {
  if (cookie != LaneSession::kControlCookie) session_.result_sent(*this, cookie);
}

void RankLink::on_closed(transport::Endpoint& /*ep*/, Errc reason) noexcept {
  SLUICE_DASSERT(puts_ == 0);
  account();
  endpoint_ = nullptr;
  state_ = State::kClosed;
  close_reason_ = reason;
  down_since_.store(std::max<Nanos>(session_.now_, 1), std::memory_order_relaxed);
  session_.link_closed(*this, reason);
}

bool RankLink::beyond_mending(Errc reason) noexcept {
  if (!is_bad_frame(reason)) return false;
  bad_closes_ = std::exchange(good_frames_, 0) >= kGoodFrames ? 1 : bad_closes_ + 1;
  return bad_closes_ >= kBadCloses;
}

void RankLink::account() noexcept {
  const transport::EndpointCounters& c = endpoint_->counters();
  LaneCounters& lane = *session_.counters_;
  lane.frames_in.add(c.frames_in - accounted_.frames_in);
  lane.frames_out.add(c.frames_out - accounted_.frames_out);
  // Who counts work requests has a device under it; its first ones were posted before its first frame.
  LaneCounters::Moved& moved = c.work_requests != 0 ? lane.rdma : lane.tcp;
  moved.bytes_in.add(c.payload_bytes_in - accounted_.payload_bytes_in);
  moved.bytes_out.add(c.payload_bytes_out - accounted_.payload_bytes_out);
  lane.bytes_copied.add(c.bytes_copied - accounted_.bytes_copied);
  lane.bytes_copied_out.add(c.bytes_copied_out - accounted_.bytes_copied_out);
  lane.work_requests.add(c.work_requests - accounted_.work_requests);
  lane.doorbells.add(c.doorbells - accounted_.doorbells);
  lane.completions.add(c.completions - accounted_.completions);
  lane.receive_calls.add(c.receive_calls - accounted_.receive_calls);
  lane.send_calls.add(c.send_calls - accounted_.send_calls);
  lane.send_blocked_ns.add(c.send_blocked_ns - accounted_.send_blocked_ns);
  accounted_ = c;
}

}  // namespace sluice::reducer
