#include "nccl_plugin/net/stream_group.h"

#include <cstdarg>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "nccl_plugin/host/log.h"

namespace sluice::nccl::net {
namespace {

// Payload taken from one stream in a turn: large enough to empty a socket's buffer in a few, small enough to
// get round to the others.
constexpr size_t kPollBudget = kMiB;

}  // namespace

Result<void> StreamGroup::adopt(GreetedStreams greeted, const transport::EndpointOptions& options) {
  context_ = std::move(greeted.context);
  for (transport::tcp::Socket& socket : greeted.sockets) {
    Stream& s = streams_[stream_count_];
    s.group = this;
    if (socket.accompanied()) {
      ++over_rdma_;
    } else {
      s.fd = socket.fd();
    }
    auto endpoint = context_->adopt(std::move(socket), s, options);
    if (!endpoint) return tl::unexpected(endpoint.error());
    s.endpoint = *endpoint;
    streams_left_ = ++stream_count_;
  }
  peer_ = streams_[0].endpoint->peer();
  if (!greeted.way.empty()) info("%s %s: %s", what_, peer_.c_str(), greeted.way.c_str());
  return {};
}

void StreamGroup::drive() noexcept {
  if (!error_.ok()) return;
  const Nanos now = monotonic_now();
  if (now < next_poll_) return;
  next_poll_ = context_->poll(now, kPollBudget) == 0 ? now + kIdlePause : 0;
  if (now >= next_look_) look_for_silence(now);
}

void StreamGroup::look_for_silence(Nanos now) noexcept {
  next_look_ = now + kSilenceLook;
  for (Stream& s : streams()) {
    if (s.endpoint == nullptr || s.fd < 0) continue;
    if (s.silence.look(acknowledgement(s.fd), now) < kVanishedAfter) continue;
    std::array<char, 96> text;
    std::snprintf(text.data(), text.size(), "the host has acknowledged nothing for %lld s",
                  static_cast<long long>(kVanishedAfter / kSecond));
    return end(Errc::kTimeout, text.data());
  }
}

void StreamGroup::poll(Nanos now) noexcept {
  context_->poll(now, kPollBudget);
}

void StreamGroup::cut(Errc reason) noexcept {
  for (Stream& s : streams()) {
    if (s.endpoint != nullptr) s.endpoint->close(reason);
  }
}

void StreamGroup::begin_ending() noexcept {
  ending_ = true;
  for (Stream& s : streams()) {
    if (s.endpoint != nullptr) s.endpoint->shutdown();
  }
}

void StreamGroup::end(Errc reason, const char* text, bool cut_now) noexcept {
  if (error_.ok()) {
    error_ = reason;
    if (!ending_) warn("%s %s: %s", what_, peer_.c_str(), text);
  }
  if (cut_now) cut(Errc::kReset);
}

transport::Placement StreamGroup::refuse(Errc code, const char* format, ...) noexcept {
  std::array<char, 256> text;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  // The stream it came on is closed by the transport with this code; the others are cut when that is told.
  end(code, text.data(), false);
  return {.status = code};
}

void StreamGroup::closed(Stream& stream, Errc reason) noexcept {
  stream.endpoint = nullptr;
  --streams_left_;
  if (reason == Errc::kClosed) {
    stream_ended();
  } else {
    const std::string_view word = to_string(reason);
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "connection lost: %.*s", static_cast<int>(word.size()),
                  word.data());
    end(reason, text.data());
  }
}

transport::Placement StreamGroup::Stream::on_header(transport::Endpoint& /*ep*/, const wire::FrameHeader& h,
                                                    std::span<const std::byte> /*extensions*/) noexcept {
  return group->header(*this, h);
}

void StreamGroup::Stream::on_frame(transport::Endpoint& /*ep*/, const wire::FrameHeader& h,
                                   std::span<const std::byte> /*extensions*/,
                                   std::span<std::byte> /*payload*/) noexcept {
  group->frame(h);
}

void StreamGroup::Stream::on_sent(transport::Endpoint& /*ep*/, transport::Cookie cookie,
                                  Status status) noexcept {
  // What was not sent ends the group by on_closed().
  if (status.ok()) group->sent(*this, cookie);
}

void StreamGroup::Stream::on_closed(transport::Endpoint& /*ep*/, Errc reason) noexcept {
  group->closed(*this, reason);
}

}  // namespace sluice::nccl::net
