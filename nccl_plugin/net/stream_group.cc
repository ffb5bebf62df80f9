#include "nccl_plugin/net/stream_group.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl::net {
namespace {

// Payload received from one stream per poll: enough to empty a socket buffer in a few polls, and small enough
// to reach the other streams soon.
constexpr size_t kPollBudget = kMiB;

}  // namespace

Result<void> StreamGroup::adopt(ConnectedStreams connected, const transport::EndpointOptions& options) {
  context_ = std::move(connected.context);
  for (transport::tcp::Socket& socket : connected.sockets) {
    Stream& s = streams_[stream_count_];
    s.group = this;
    if (socket.has_queue_pair()) {
      ++rdma_streams_;
    } else {
      s.fd = socket.fd();
    }
    auto endpoint = context_->adopt(std::move(socket), s, options);
    if (!endpoint) return tl::unexpected(endpoint.error());
    s.endpoint = *endpoint;
    open_streams_ = ++stream_count_;
  }
  name_.append(" ").append(streams_[0].endpoint->peer());
  if (!connected.transport_text.empty()) info("%s: %s", name_.c_str(), connected.transport_text.c_str());
  return {};
}

Status StreamGroup::log_failure(const char* call, Status status) noexcept {
  if (!status.ok()) failures_.log_first(name_.c_str(), call, status.code());
  return status;
}

void StreamGroup::log_suppressed_failures() noexcept {
  failures_.log_suppressed(name_.c_str());
}

void StreamGroup::progress() noexcept {
  if (!error_.ok()) return;
  const Nanos now = monotonic_now();
  if (now < next_poll_) return;
  next_poll_ = context_->poll(now, kPollBudget) == 0 ? now + kIdlePause : 0;
  if (now >= next_timeout_check_) check_peer_timeouts(now);
}

void StreamGroup::check_peer_timeouts(Nanos now) noexcept {
  next_timeout_check_ = now + kAckCheckInterval;
  for (Stream& s : streams()) {
    if (s.endpoint == nullptr || s.fd < 0) continue;
    if (s.peer_timeout.update(read_ack_state(s.fd), now) < kAckTimeout) continue;
    std::array<char, 96> text;
    std::snprintf(text.data(), text.size(), "peer lost: its host acknowledged nothing for %lld s",
                  static_cast<long long>(kAckTimeout / kSecond));
    return fail_group(Errc::kTimeout, text.data());
  }
}

void StreamGroup::poll(Nanos now) noexcept {
  context_->poll(now, kPollBudget);
}

void StreamGroup::close_streams(Errc reason) noexcept {
  for (Stream& s : streams()) {
    if (s.endpoint != nullptr) s.endpoint->close(reason);
  }
}

void StreamGroup::begin_shutdown() noexcept {
  shutting_down_ = true;
  for (Stream& s : streams()) {
    if (s.endpoint != nullptr) s.endpoint->shutdown();
  }
}

void StreamGroup::fail_group(Errc reason, const char* text, bool close_now) noexcept {
  if (error_.ok()) {
    error_ = reason;
    if (!shutting_down_) warn("%s: %s", name_.c_str(), text);
  }
  if (close_now) close_streams(Errc::kReset);
}

transport::ReceiveTarget StreamGroup::reject(Errc code, const char* format, ...) noexcept {
  std::array<char, 256> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  // The transport closes the stream of the frame with this code; on_stream_closed() then closes the others.
  fail_group(code, text.data(), false);
  return {.status = code};
}

void StreamGroup::on_stream_closed(Stream& stream, Errc reason) noexcept {
  stream.endpoint = nullptr;
  --open_streams_;
  if (reason == Errc::kClosed) {
    on_stream_end();
  } else {
    const std::string_view name = to_string(reason);
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "connection lost: %.*s", static_cast<int>(name.size()),
                  name.data());
    fail_group(reason, text.data());
  }
}

transport::ReceiveTarget StreamGroup::Stream::on_header(transport::Endpoint& /*ep*/,
                                                        const wire::FrameHeader& h,
                                                        std::span<const std::byte> /*extensions*/) noexcept {
  return group->accept_header(*this, h);
}

void StreamGroup::Stream::on_frame(transport::Endpoint& /*ep*/, const wire::FrameHeader& h,
                                   std::span<const std::byte> /*extensions*/,
                                   std::span<std::byte> /*payload*/) noexcept {
  group->complete_frame(h);
}

void StreamGroup::Stream::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie,
                                  Status status) noexcept {
  // A frame that was not sent is followed by on_closed(), which ends the group.
  if (status.ok()) group->complete_send(*this, cookie);
}

void StreamGroup::Stream::on_closed(transport::Endpoint& /*ep*/, Errc reason) noexcept {
  group->on_stream_closed(*this, reason);
}

}  // namespace sluice::nccl::net
