#include "tests/conformance/transport/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::transport::test {
namespace {

constexpr size_t kGuard = 64;
constexpr std::byte kGuardByte{0xA5};

bool intact(std::span<const std::byte> guard) {
  return std::ranges::all_of(guard, [](std::byte b) { return b == kGuardByte; });
}

}  // namespace

Status Recorder::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                     std::span<const std::byte> payload) {
  const bool outer = std::exchange(inside_call_, true);
  const Status s = endpoint->put(header, extensions, payload, accepted_);
  inside_call_ = outer;
  if (s.ok()) ++accepted_;
  return s;
}

void Recorder::close(Errc reason) {
  const bool outer = std::exchange(inside_call_, true);
  endpoint->close(reason);
  inside_call_ = outer;
}

void Recorder::shutdown() {
  const bool outer = std::exchange(inside_call_, true);
  endpoint->shutdown();
  inside_call_ = outer;
}

Status Recorder::put_pattern(size_t size, uint64_t sequence, size_t extension_bytes) {
  Bytes payload = pattern(size, sequence);
  const Bytes extensions = extension_area(extension_bytes, sequence);
  const Status s = put(header_for(payload, sequence, extension_bytes), extensions, payload);
  if (s.ok()) {
    lent_.resize(accepted_);
    lent_.back() = std::move(payload);
  }
  return s;
}

void Recorder::check_callback(const Endpoint& ep) const {
  EXPECT_FALSE(inside_call_) << "a callback came inside put(), close() or shutdown()";
  EXPECT_FALSE(closed.has_value()) << "a callback came after on_closed()";
  EXPECT_EQ(&ep, endpoint);
}

Placement Recorder::on_header(Endpoint& ep, const wire::FrameHeader& header,
                              std::span<const std::byte> extensions) noexcept {
  check_callback(ep);
  EXPECT_FALSE(arriving_.has_value()) << "two headers without a frame between them";
  EXPECT_EQ(extensions.size(), header.extension_bytes());
  ++headers;
  arriving_ = header;
  const Status status = at_header ? at_header(header) : Status();
  if (!status.ok() || no_place) return {status, nullptr};
  const size_t room = header.length + 2 * kGuard;
  if (room > landing_room_) {
    landing_ = std::make_unique_for_overwrite<std::byte[]>(room);  // up to 4 MiB a frame, not cleared
    landing_room_ = room;
  }
  std::fill_n(landing_.get(), kGuard, kGuardByte);
  std::fill_n(landing_.get() + kGuard + header.length, kGuard, kGuardByte);
  return {Errc::kOk, landing_.get() + kGuard};
}

void Recorder::on_frame(Endpoint& ep, const wire::FrameHeader& header, std::span<const std::byte> extensions,
                        std::span<std::byte> payload) noexcept {
  check_callback(ep);
  EXPECT_TRUE(arriving_ == header);
  arriving_.reset();
  EXPECT_EQ(payload.data(), landing_.get() + kGuard);
  EXPECT_EQ(payload.size(), header.length);
  EXPECT_TRUE(intact({landing_.get(), kGuard}) && intact({landing_.get() + kGuard + header.length, kGuard}))
      << "written outside the payload";
  bytes += payload.size();
  if (keep_payload) {
    received.push_back({header, {extensions.begin(), extensions.end()}, {payload.begin(), payload.end()}});
  }
  if (at_frame) at_frame(header, payload);
}

void Recorder::on_sent(Endpoint& ep, Cookie cookie, Status status) noexcept {
  check_callback(ep);
  EXPECT_EQ(cookie, sent.size()) << "given back out of order, or twice";
  EXPECT_LT(cookie, accepted_);
  sent.push_back(status);
  if (cookie < lent_.size()) Bytes().swap(lent_[cookie]);
  if (at_sent) at_sent(cookie, status);
}

void Recorder::on_closed(Endpoint& ep, Errc reason) noexcept {
  check_callback(ep);
  EXPECT_TRUE(all_given_back()) << "closed with " << accepted_ - sent.size() << " puts not given back";
  last_counters = ep.counters();
  closed = reason;
  if (at_closed) at_closed(reason);
  endpoint = nullptr;
}

}  // namespace sluice::transport::test
