#include "tests/support/transport/fault_endpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::transport::fault {

void FaultEndpoint::bind(Endpoint& below, const EndpointOptions& options) {
  below_ = &below;
  options_ = options;
  options_.send_queue = std::max<uint32_t>(options_.send_queue, 1);
  peer_ = below.peer();
  bound_ = true;
}

Status FaultEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                          std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_ || below_ == nullptr) return Errc::kClosed;
  if (!lengths_match(header, extensions, payload)) return Errc::kInvalidArgument;
  if (outstanding_ == options_.send_queue) return Errc::kWouldBlock;
  HeldFrame frame{.header = header,
                  .extensions = {},
                  .payload = payload,
                  .cookie = cookie,
                  .faults = {},
                  .release_at = {},
                  .corrupted = {}};
  std::ranges::copy(extensions, frame.extensions.begin());
  frame.faults = schedule_.next(!payload.empty(), faults_);
  if (frame.faults.corrupt) {
    frame.corrupted.assign(payload.begin(), payload.end());
    const uint64_t bit = frame.faults.corrupt_bit % (payload.size() * 8);
    frame.corrupted[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  stall_pending_ = std::max(stall_pending_, frame.faults.stall);
  Status accepted = Errc::kWouldBlock;
  if (held_.empty() && !is_stalled() && !frame.faults.delays_frame()) accepted = forward(frame);
  if (accepted == Errc::kWouldBlock) {
    held_.push_back(std::move(frame));
  } else if (accepted.ok()) {
    // Moving the vector keeps its memory, which the transport below reads.
    in_flight_.push_back(std::move(frame.corrupted));
  } else {
    return accepted;
  }
  ++outstanding_;
  return Errc::kOk;
}

Status FaultEndpoint::forward(const HeldFrame& frame) noexcept {
  const auto payload = frame.faults.corrupt ? std::span<const std::byte>(frame.corrupted) : frame.payload;
  return below_->put(frame.header, std::span(frame.extensions).first(frame.header.extension_bytes()), payload,
                     frame.cookie);
}

void FaultEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  stall_pending_ = stall_until_ = 0;
  if (below_ != nullptr) below_->close(reason);
}

unsigned FaultEndpoint::advance(Nanos now) noexcept {
  now_ = now;
  if (!bound_ || finished_) return 0;
  start_timers();
  if (now_ < stall_until_) return 0;
  unsigned done = replay_deferred();
  if (!finished_ && !closing_ && below_ != nullptr && !is_stalled()) done += release_held();
  return done;
}

// Durations start at the first poll() after the put, because put() does not know the time.
void FaultEndpoint::start_timers() noexcept {
  if (stall_pending_ > 0) stall_until_ = std::max(stall_until_, now_ + std::exchange(stall_pending_, 0));
  for (HeldFrame& frame : held_) {
    if (!frame.release_at) frame.release_at = now_ + frame.faults.delay;
  }
}

unsigned FaultEndpoint::release_held() noexcept {
  unsigned done = 0;
  while (!held_.empty() && held_.front().release_at.value_or(now_ + 1) <= now_) {
    HeldFrame& frame = held_.front();
    if (frame.faults.reset) {
      below_->close(Errc::kReset);
      return done + 1;
    }
    if (frame.faults.drop) {
      ended_ = true;
      if (!std::exchange(shutdown_sent_, true)) below_->shutdown();
      return done;
    }
    // On kWouldBlock a later poll() tries again; otherwise on_closed() completes the frames.
    if (!forward(frame).ok()) return done;
    in_flight_.push_back(std::move(frame.corrupted));
    held_.pop_front();
    ++done;
  }
  if (held_.empty() && ended_ && !std::exchange(shutdown_sent_, true)) below_->shutdown();
  return done;
}

std::optional<Nanos> FaultEndpoint::next_due() const noexcept {
  if (!bound_ || finished_) return std::nullopt;
  if (stall_pending_ > 0) return 0;
  if (now_ < stall_until_) return stall_until_ - now_;
  if (!deferred_.empty()) return incoming_ == &deferred_.front() ? std::nullopt : std::optional<Nanos>(0);
  if (closing_ || shutdown_sent_) return std::nullopt;
  if (held_.empty()) return ended_ ? std::optional<Nanos>(0) : std::nullopt;
  if (!held_.front().release_at) return 0;
  if (*held_.front().release_at <= now_)
    return std::nullopt;  // waits for queue space below, which ends the sleep there
  return *held_.front().release_at - now_;
}

FaultEndpoint::DeferredCallback& FaultEndpoint::defer(DeferredCallback::Kind kind,
                                                      const wire::FrameHeader& header,
                                                      std::span<const std::byte> extensions) {
  DeferredCallback& event = deferred_.emplace_back();
  event.kind = kind;
  event.header = header;
  std::ranges::copy(extensions, event.extensions.begin());
  return event;
}

ReceiveTarget FaultEndpoint::on_header(Endpoint&, const wire::FrameHeader& header,
                                       std::span<const std::byte> extensions) noexcept {
  if (!is_stalled()) return above_.on_header(*this, header, extensions);
  DeferredCallback& event = defer(DeferredCallback::Kind::kFrame, header, extensions);
  event.arrived.resize(header.length);
  incoming_ = &event;
  return {Errc::kOk, event.arrived.data()};
}

void FaultEndpoint::on_frame(Endpoint&, const wire::FrameHeader& header,
                             std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (!is_stalled()) return above_.on_frame(*this, header, extensions, payload);
  if (incoming_ != nullptr) {
    std::exchange(incoming_, nullptr)->complete = true;
    return;
  }
  defer(DeferredCallback::Kind::kPlacedFrame, header, extensions).placed = payload;
}

void FaultEndpoint::on_sent(Endpoint&, Cookie cookie, Status status) noexcept {
  in_flight_.pop_front();
  if (!is_stalled()) {
    --outstanding_;
    return above_.on_sent(*this, cookie, status);
  }
  DeferredCallback& event = defer(DeferredCallback::Kind::kSent);
  event.cookie = cookie;
  event.status = status;
}

void FaultEndpoint::on_closed(Endpoint& ep, Errc reason) noexcept {
  last_counters_ = ep.counters();
  below_ = nullptr;
  if (std::exchange(incoming_, nullptr) != nullptr) {
    // The layer above does not know the incomplete frame, so its callback is dropped.
    using Kind = DeferredCallback::Kind;
    std::erase_if(deferred_, [](const DeferredCallback& d) { return d.kind == Kind::kFrame && !d.complete; });
  }
  if (!is_stalled()) return finish(reason);
  defer(DeferredCallback::Kind::kClosed).reason = reason;
}

unsigned FaultEndpoint::replay_deferred() noexcept {
  unsigned done = 0;
  while (!deferred_.empty() && &deferred_.front() != incoming_) {
    // Removed before the call. The remaining entries keep is_stalled() true, which preserves the order.
    DeferredCallback event = std::move(deferred_.front());
    deferred_.pop_front();
    ++done;
    switch (event.kind) {
      case DeferredCallback::Kind::kFrame: replay_frame(event); break;
      case DeferredCallback::Kind::kPlacedFrame:
        if (!closing_) above_.on_frame(*this, event.header, event.extension_area(), event.placed);
        break;
      case DeferredCallback::Kind::kSent:
        --outstanding_;
        above_.on_sent(*this, event.cookie, event.status);
        break;
      case DeferredCallback::Kind::kClosed: finish(closing_ ? reason_ : event.reason); break;
    }
    if (stall_pending_ > 0) break;  // a put of the callback started the next stall
  }
  return done;
}

void FaultEndpoint::replay_frame(DeferredCallback& event) noexcept {
  if (closing_) return;
  const ReceiveTarget target = above_.on_header(*this, event.header, event.extension_area());
  if (closing_) return;
  if (!target.status.ok()) return close(target.status.code());
  if (!event.arrived.empty()) std::memcpy(target.payload, event.arrived.data(), event.arrived.size());
  above_.on_frame(*this, event.header, event.extension_area(), {target.payload, event.arrived.size()});
}

void FaultEndpoint::finish(Errc reason) noexcept {
  closing_ = true;
  while (!held_.empty()) {
    const Cookie cookie = held_.front().cookie;
    held_.pop_front();
    --outstanding_;
    above_.on_sent(*this, cookie, reason);
  }
  above_.on_closed(*this, reason);
  finished_ = true;
}

}  // namespace sluice::transport::fault
