#include "transport/fault/fault_endpoint.h"

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
  if (!fits(header, extensions, payload)) return Errc::kInvalidArgument;
  if (outstanding_ == options_.send_queue) return Errc::kWouldBlock;
  Held frame{.header = header,
             .extensions = {},
             .payload = payload,
             .cookie = cookie,
             .hit = {},
             .release_at = {},
             .corrupted = {}};
  std::ranges::copy(extensions, frame.extensions.begin());
  frame.hit = draw_.next(!payload.empty(), faults_);
  if (frame.hit.corrupt) {
    frame.corrupted.assign(payload.begin(), payload.end());
    const uint64_t bit = frame.hit.corrupt_bit % (payload.size() * 8);
    frame.corrupted[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  stall_pending_ = std::max(stall_pending_, frame.hit.stall);
  Status taken = Errc::kWouldBlock;
  if (held_.empty() && !stalled() && !frame.hit.holds_back()) taken = pass_down(frame);
  if (taken == Errc::kWouldBlock) {
    held_.push_back(std::move(frame));
  } else if (taken.ok()) {
    in_flight_.push_back(
        std::move(frame.corrupted));  // the vector's memory stays where the transport below reads it
  } else {
    return taken;
  }
  ++outstanding_;
  return Errc::kOk;
}

Status FaultEndpoint::pass_down(const Held& frame) noexcept {
  const auto payload = frame.hit.corrupt ? std::span<const std::byte>(frame.corrupted) : frame.payload;
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

void FaultEndpoint::shutdown() noexcept {
  if (closing_) return;
  ended_ = true;  // told below by advance(), behind what is held
}

bool FaultEndpoint::idle() const noexcept {
  return held_.empty() && (below_ == nullptr || below_->idle());
}

const EndpointCounters& FaultEndpoint::counters() const noexcept {
  return below_ != nullptr ? below_->counters() : last_counters_;
}

uint64_t FaultEndpoint::losses() const noexcept {
  return below_ != nullptr ? below_->losses() : 0;
}

unsigned FaultEndpoint::advance(Nanos now) noexcept {
  now_ = now;
  if (!bound_ || dead_) return 0;
  start_clocks();
  if (now_ < stall_until_) return 0;
  unsigned done = replay_deferred();
  if (!dead_ && !closing_ && below_ != nullptr && !stalled()) done += release_held();
  return done;
}

// Durations count from the first poll after the put: a put has no clock.
void FaultEndpoint::start_clocks() noexcept {
  if (stall_pending_ > 0) stall_until_ = std::max(stall_until_, now_ + std::exchange(stall_pending_, 0));
  for (Held& frame : held_) {
    if (!frame.release_at) frame.release_at = now_ + frame.hit.delay;
  }
}

unsigned FaultEndpoint::release_held() noexcept {
  unsigned done = 0;
  while (!held_.empty() && held_.front().release_at.value_or(now_ + 1) <= now_) {
    Held& frame = held_.front();
    if (frame.hit.reset) {
      below_->close(Errc::kReset);
      return done + 1;
    }
    if (frame.hit.drop) {
      ended_ = true;
      if (!std::exchange(told_below_, true)) below_->shutdown();
      return done;
    }
    if (!pass_down(frame).ok())
      return done;  // full: after progress; closing: on_closed() gives back what is held
    in_flight_.push_back(std::move(frame.corrupted));
    held_.pop_front();
    ++done;
  }
  if (held_.empty() && ended_ && !std::exchange(told_below_, true)) below_->shutdown();
  return done;
}

std::optional<Nanos> FaultEndpoint::next_due() const noexcept {
  if (!bound_ || dead_) return std::nullopt;
  if (stall_pending_ > 0) return 0;
  if (now_ < stall_until_) return stall_until_ - now_;
  if (!deferred_.empty()) return arriving_ == &deferred_.front() ? std::nullopt : std::optional<Nanos>(0);
  if (closing_ || told_below_) return std::nullopt;
  if (held_.empty()) return ended_ ? std::optional<Nanos>(0) : std::nullopt;
  if (!held_.front().release_at) return 0;
  if (*held_.front().release_at <= now_)
    return std::nullopt;  // waits for room below, which ends the sleep there
  return *held_.front().release_at - now_;
}

Placement FaultEndpoint::on_header(Endpoint&, const wire::FrameHeader& header,
                                   std::span<const std::byte> extensions) noexcept {
  if (!stalled()) return above_.on_header(*this, header, extensions);
  Deferred& event = deferred_.emplace_back();
  event.kind = Deferred::Kind::kFrame;
  event.header = header;
  std::ranges::copy(extensions, event.extensions.begin());
  event.arrived.resize(header.length);
  arriving_ = &event;
  return {Errc::kOk, event.arrived.data()};
}

void FaultEndpoint::on_frame(Endpoint&, const wire::FrameHeader& header,
                             std::span<const std::byte> extensions, std::span<std::byte> payload) noexcept {
  if (!stalled()) return above_.on_frame(*this, header, extensions, payload);
  if (arriving_ != nullptr) {
    std::exchange(arriving_, nullptr)->complete = true;
    return;
  }
  Deferred& event = deferred_.emplace_back();
  event.kind = Deferred::Kind::kPlacedFrame;
  event.header = header;
  std::ranges::copy(extensions, event.extensions.begin());
  event.placed = payload;
}

// A layer that seems to stand still grants nothing.
Loan FaultEndpoint::lend(Endpoint&) noexcept {
  return stalled() || closing_ ? Loan{} : above_.lend(*this);
}

void FaultEndpoint::recall() noexcept {
  if (below_ != nullptr) below_->recall();
}

void FaultEndpoint::on_sent(Endpoint&, Cookie cookie, Status status) noexcept {
  in_flight_.pop_front();
  if (!stalled()) {
    --outstanding_;
    return above_.on_sent(*this, cookie, status);
  }
  Deferred& event = deferred_.emplace_back();
  event.kind = Deferred::Kind::kSent;
  event.cookie = cookie;
  event.status = status;
}

void FaultEndpoint::on_closed(Endpoint& ep, Errc reason) noexcept {
  last_counters_ = ep.counters();
  below_ = nullptr;
  if (std::exchange(arriving_, nullptr) != nullptr) {
    // Above never heard of the frame whose rest will not come.
    std::erase_if(deferred_,
                  [](const Deferred& d) { return d.kind == Deferred::Kind::kFrame && !d.complete; });
  }
  if (!stalled()) return end(reason);
  Deferred& event = deferred_.emplace_back();
  event.kind = Deferred::Kind::kClosed;
  event.reason = reason;
}

unsigned FaultEndpoint::replay_deferred() noexcept {
  unsigned done = 0;
  while (!deferred_.empty() && &deferred_.front() != arriving_) {
    // Off the list while above is called; still counted as stalled by those behind it, so that order is kept.
    Deferred event = std::move(deferred_.front());
    deferred_.pop_front();
    ++done;
    switch (event.kind) {
      case Deferred::Kind::kFrame: replay_frame(event); break;
      case Deferred::Kind::kPlacedFrame:
        if (!closing_) above_.on_frame(*this, event.header, event.extension_area(), event.placed);
        break;
      case Deferred::Kind::kSent:
        --outstanding_;
        above_.on_sent(*this, event.cookie, event.status);
        break;
      case Deferred::Kind::kClosed: end(closing_ ? reason_ : event.reason); break;
    }
    if (stall_pending_ > 0) break;  // a callback's put brought the next stall
  }
  return done;
}

void FaultEndpoint::replay_frame(Deferred& event) noexcept {
  if (closing_) return;
  const Placement place = above_.on_header(*this, event.header, event.extension_area());
  if (closing_) return;
  if (!place.status.ok()) return close(place.status.code());
  if (!event.arrived.empty()) std::memcpy(place.payload, event.arrived.data(), event.arrived.size());
  above_.on_frame(*this, event.header, event.extension_area(), {place.payload, event.arrived.size()});
}

void FaultEndpoint::end(Errc reason) noexcept {
  closing_ = true;
  while (!held_.empty()) {
    const Cookie cookie = held_.front().cookie;
    held_.pop_front();
    --outstanding_;
    above_.on_sent(*this, cookie, reason);
  }
  above_.on_closed(*this, reason);
  dead_ = true;
}

}  // namespace sluice::transport::fault
