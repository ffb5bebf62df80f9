#include "tests/conformance/transport/recording_handler.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::transport::test {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};

bool is_intact(std::span<const std::byte> guard) {
  return std::ranges::all_of(guard, [](std::byte b) { return b == kGuardByte; });
}

}  // namespace

Status RecordingHandler::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                             std::span<const std::byte> payload) {
  const bool outer = std::exchange(inside_call_, true);
  const Status s = endpoint->put(header, extensions, payload, accepted_);
  inside_call_ = outer;
  if (s.ok()) ++accepted_;
  return s;
}

void RecordingHandler::close(Errc reason) {
  const bool outer = std::exchange(inside_call_, true);
  endpoint->close(reason);
  inside_call_ = outer;
}

void RecordingHandler::shutdown() {
  const bool outer = std::exchange(inside_call_, true);
  endpoint->shutdown();
  inside_call_ = outer;
}

Status RecordingHandler::put_pattern(size_t size, uint64_t sequence, size_t extension_bytes) {
  Bytes payload = pattern(size, sequence);
  const Bytes extensions = extension_area(extension_bytes, sequence);
  const Status s = put(header_for(payload, sequence, extension_bytes), extensions, payload);
  if (s.ok()) {
    put_payloads_.resize(accepted_);
    put_payloads_.back() = std::move(payload);
  }
  return s;
}

void RecordingHandler::check_callback(const Endpoint& ep) const {
  EXPECT_FALSE(inside_call_) << "callback inside put(), close() or shutdown()";
  EXPECT_FALSE(closed.has_value()) << "callback after on_closed()";
  EXPECT_EQ(&ep, endpoint);
}

ReceiveTarget RecordingHandler::on_header(Endpoint& ep, const wire::FrameHeader& header,
                                          std::span<const std::byte> extensions) noexcept {
  check_callback(ep);
  EXPECT_FALSE(incoming_.has_value()) << "on_header() called twice without on_frame()";
  EXPECT_EQ(extensions.size(), header.extension_bytes());
  ++headers;
  incoming_ = header;
  const Status status = at_header ? at_header(header) : Status();
  if (!status.ok() || no_buffer) return {status, nullptr};
  const size_t room = header.length + 2 * kGuard;
  if (room > buffer_size_) {
    buffer_ = std::make_unique_for_overwrite<std::byte[]>(room);  // not cleared: up to 4 MiB per frame
    buffer_size_ = room;
  }
  std::fill_n(buffer_.get(), kGuard, kGuardByte);
  std::fill_n(buffer_.get() + kGuard + header.length, kGuard, kGuardByte);
  return {Errc::kOk, buffer_.get() + kGuard};
}

void RecordingHandler::on_frame(Endpoint& ep, const wire::FrameHeader& header,
                                std::span<const std::byte> extensions,
                                std::span<std::byte> payload) noexcept {
  check_callback(ep);
  EXPECT_TRUE(incoming_ == header);
  incoming_.reset();
  EXPECT_EQ(payload.data(), buffer_.get() + kGuard);
  EXPECT_EQ(payload.size(), header.length);
  EXPECT_TRUE(is_intact({buffer_.get(), kGuard}) &&
              is_intact({buffer_.get() + kGuard + header.length, kGuard}))
      << "bytes outside the payload were written";
  bytes += payload.size();
  if (keep_payload) {
    received.push_back({header, {extensions.begin(), extensions.end()}, {payload.begin(), payload.end()}});
  }
  if (at_frame) at_frame(header, payload);
}

void RecordingHandler::on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept {
  check_callback(ep);
  EXPECT_EQ(cookie, sent.size()) << "on_sent() out of order or twice";
  EXPECT_LT(cookie, accepted_);
  sent.push_back(status);
  if (cookie < put_payloads_.size()) Bytes().swap(put_payloads_[cookie]);
  if (at_sent) at_sent(cookie, status);
}

void RecordingHandler::on_closed(Endpoint& ep, Errc reason) noexcept {
  check_callback(ep);
  EXPECT_TRUE(all_completed()) << "closed with " << accepted_ - sent.size() << " puts without on_sent()";
  last_counters = ep.counters();
  closed = reason;
  if (at_closed) at_closed(reason);
  endpoint = nullptr;
}

}  // namespace sluice::transport::test
