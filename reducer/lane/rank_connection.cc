#include "reducer/lane/rank_connection.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "reducer/lane/lane_session.h"

namespace sluice::reducer {

namespace {
// A rank is excluded after kMaxBadFrameCloses closes with fewer than kGoodFrames frames between them:
// protocol.md section 11, "Resume".
constexpr uint32_t kMaxBadFrameCloses = 16;
constexpr uint32_t kGoodFrames = 1024;

}  // namespace

transport::ReceiveTarget RankConnection::on_header(transport::Endpoint& /*ep*/,
                                                   const wire::FrameHeader& header,
                                                   std::span<const std::byte> extensions) noexcept {
  if (header.type == wire::FrameType::kContribution) {
    std::byte* slot_memory = nullptr;
    const Status status = session_.admit(*this, header, extensions, slot_memory);
    return {.status = status, .payload = slot_memory};
  }
  size_t max_length = 0;  // decoding checks the exact length of the body
  switch (header.type) {
    case wire::FrameType::kCommit:
      if (state_ == State::kAttached && !committed_) max_length = 16;
      break;
    case wire::FrameType::kResume:
      if (state_ == State::kAttached && session_.plan_.fault_tolerant) max_length = control_body_.size();
      break;
    case wire::FrameType::kViewCommit:
      if (state_ == State::kCommitted && session_.plan_.fault_tolerant) max_length = control_body_.size();
      break;
    default: break;
  }
  if (max_length == 0) return {.status = Errc::kUnexpectedMessage};
  if (header.length > max_length) return {.status = Errc::kBadLength};
  return {.status = Errc::kOk, .payload = control_body_.data()};
}

void RankConnection::on_frame(transport::Endpoint& ep, const wire::FrameHeader& header,
                              std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  good_frames_ = std::min(good_frames_ + 1, kGoodFrames);
  Status status;
  switch (header.type) {
    case wire::FrameType::kContribution: {
      if (header.encoding == wire::Encoding::kPlain && !wire::is_block(header.wire_dtype))
        return session_.on_contribution(*this, header, extensions);
      wire::FrameHeader decoded = header;
      status = session_.decode(decoded, extensions, payload.data());
      if (status.ok()) return session_.on_contribution(*this, decoded, extensions);
      break;
    }
    case wire::FrameType::kResume: status = session_.resume(*this, payload); break;
    case wire::FrameType::kViewCommit: status = session_.view_commit(*this, payload); break;
    default: status = session_.commit(*this, payload); break;
  }
  if (!status.ok()) ep.close(status.code());
}

// Most operations have many chunks, and all but the last have the same length. An all-gather has a payload in
// one frame of n.
transport::ExpectedFrame RankConnection::expected_frame(transport::Endpoint& /*ep*/,
                                                        unsigned ahead) noexcept {
  const uint64_t sequence = next_contribution_ + ahead;
  if (last_length_ == 0 || !session_.may_contribute(*this, sequence)) return {};
  return {.payload = session_.contribution_slot(*this, sequence),
          .length = last_length_,
          .extension_bytes = last_extension_bytes_};
}

// Advertises a slot as soon as it is granted. The slots belong to this rank, so a late frame of another view
// does no harm there.
transport::RemoteBuffer RankConnection::advertise(transport::Endpoint& /*ep*/) noexcept {
  next_advertised_ = std::max(next_advertised_, next_contribution_);
  if (!session_.may_contribute(*this, next_advertised_)) return {};
  const uint64_t sequence = next_advertised_++;
  return {.payload = session_.contribution_slot(*this, sequence),
          .capacity = session_.plan_.slot_bytes,
          .view_version = view_.version,
          .sequence = sequence};
}

void RankConnection::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie,
                             Status /*status*/) noexcept {
  if (cookie != LaneSession::kControlCookie) session_.on_result_sent(*this, cookie);
}

void RankConnection::on_closed(transport::Endpoint& /*ep*/, Errc reason) noexcept {
  SLUICE_DASSERT(pending_puts_ == 0);
  add_counters();
  path_.start();
  endpoint_ = nullptr;
  state_ = State::kClosed;
  close_reason_ = reason;
  down_since_.store(std::max<Nanos>(session_.now(), 1), std::memory_order_relaxed);
  session_.on_connection_closed(*this, reason);
}

bool RankConnection::exceeds_bad_frame_limit(Errc reason) noexcept {
  if (!is_bad_frame(reason)) return false;
  bad_frame_closes_ = std::exchange(good_frames_, 0) >= kGoodFrames ? 1 : bad_frame_closes_ + 1;
  return bad_frame_closes_ >= kMaxBadFrameCloses;
}

bool RankConnection::add_counters() noexcept {
  const transport::EndpointCounters& c = endpoint_->counters();
  if (c == counted_) return false;
  LaneCounters& lane = *session_.counters_;
  lane.frames_in.add(c.frames_in - counted_.frames_in);
  lane.frames_out.add(c.frames_out - counted_.frames_out);
  // Only RDMA endpoints count work requests, and they post the first ones before their first frame.
  LaneCounters::PayloadBytes& moved = c.work_requests != 0 ? lane.rdma : lane.tcp;
  moved.bytes_in.add(c.payload_bytes_in - counted_.payload_bytes_in);
  moved.bytes_out.add(c.payload_bytes_out - counted_.payload_bytes_out);
  lane.bytes_copied.add(c.bytes_copied - counted_.bytes_copied);
  lane.bytes_copied_out.add(c.bytes_copied_out - counted_.bytes_copied_out);
  lane.work_requests.add(c.work_requests - counted_.work_requests);
  lane.post_calls.add(c.post_calls - counted_.post_calls);
  lane.completions.add(c.completions - counted_.completions);
  lane.receive_calls.add(c.receive_calls - counted_.receive_calls);
  lane.send_calls.add(c.send_calls - counted_.send_calls);
  lane.send_blocked_ns.add(c.send_blocked_ns - counted_.send_blocked_ns);
  counted_ = c;
  has_unsampled_ = true;
  return true;
}

bool RankConnection::sample_path(Nanos now) noexcept {
  if (!std::exchange(has_unsampled_, false) && !path_.has_unacked()) return false;
  const transport::PathReport news = path_.sample(*endpoint_, now);
  session_.counters_->packets_out.add(news.packets);
  session_.counters_->lost_packets_out.add(news.lost_packets);
  return true;
}

}  // namespace sluice::reducer
