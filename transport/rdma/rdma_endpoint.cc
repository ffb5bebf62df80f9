#include "transport/rdma/rdma_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace sluice::transport::rdma {

RdmaEndpoint::RdmaEndpoint(tcp::Socket lifeline, std::unique_ptr<QueuePair> pair, Handler& handler,
                           const EndpointOptions& options, tcp::TcpContext& sleep,
                           std::span<std::byte> scratch)
    : lifeline_(std::move(lifeline)),
      pair_(std::move(pair)),
      handler_(handler),
      options_(options),
      sleep_(sleep),
      lifeline_watch_(*this),
      pair_watch_(*pair_),
      queue_(std::max<size_t>(options.send_queue, 1)),
      reader_(options.max_payload, scratch),
      peer_(tcp::peer_name(lifeline_.fd())) {
  tcp::probe_when_idle(lifeline_.fd());
}

RdmaEndpoint::~RdmaEndpoint() {
  if (watches_pair_) sleep_.unwatch(pair_->event_fd(), pair_handle_);
  unwatch_lifeline();
  if (reason_ != Errc::kReset) lifeline_.end();
}

Result<void> RdmaEndpoint::watch() {
  auto of_pair = sleep_.watch(pair_->event_fd(), pair_watch_);
  if (!of_pair) return tl::unexpected(of_pair.error());
  pair_handle_ = *of_pair;
  watches_pair_ = true;
  auto of_lifeline = sleep_.watch(lifeline_.fd(), lifeline_watch_);
  if (!of_lifeline) return tl::unexpected(of_lifeline.error());
  lifeline_handle_ = *of_lifeline;
  watches_lifeline_ = true;
  return {};
}

void RdmaEndpoint::unwatch_lifeline() noexcept {
  if (std::exchange(watches_lifeline_, false)) sleep_.unwatch(lifeline_.fd(), lifeline_handle_);
}

// Its only word is its end.
void RdmaEndpoint::lifeline_readable() noexcept {
  std::byte word;
  const ssize_t n = ::recv(lifeline_.fd(), &word, sizeof word, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n == 0) lifeline_over_ = Errc::kClosed;
  if (n < 0) lifeline_over_ = tcp::broken_by(errno);
  if (n > 0) lifeline_over_ = Errc::kBadType;
  unwatch_lifeline();
}

Status RdmaEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                         std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_ || !pair_->broken().ok()) return Errc::kClosed;
  if (!fits(header, extensions, payload)) return Errc::kInvalidArgument;
  if (queue_.full()) return Errc::kWouldBlock;
  queue_.push(header, extensions, payload, cookie);
  return Errc::kOk;
}

void RdmaEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  reader_.stop();
  if (reason != Errc::kReset) {
    (void)pair_->end();  // kWouldBlock: while it lingers; broken: the lifeline's end is all there is to say
    return;
  }
  unwatch_lifeline();
  lifeline_.reset();
}

void RdmaEndpoint::leave() noexcept {
  close(Errc::kClosed);
  if (!finished_) lingers_ = reason_ != Errc::kReset;
  finished_ = true;
}

unsigned RdmaEndpoint::turn(Nanos now, size_t budget_bytes) noexcept {
  if (lingers_) linger();
  if (closing_) return 0;
  unsigned done = flush(now);
  if (!closing_) done += receive(now, budget_bytes);
  if (!closing_) done += flush(now);  // what the callbacks have put
  if (!closing_) check_deadline(now);
  return done;
}

unsigned RdmaEndpoint::flush(Nanos now) noexcept {
  unsigned done = 0;
  while (!closing_ && !queue_.empty()) {
    const std::span<std::byte> room = pair_->room();
    if (room.empty()) return done;
    const size_t bytes = queue_.take(room);
    if (!pair_->send(bytes).ok()) return done;  // receive() ends it, with what has arrived
    last_sent_ = now;
    counters_.wire_bytes_out += bytes;
    done += 1 + give_back_sent();
  }
  if (closing_ || !queue_.empty()) return done;
  if (peer_ended_) {
    close(Errc::kClosed);
  } else if (ended_ && !pair_->ended()) {
    (void)pair_->end();  // kWouldBlock: at a later turn; broken: receive() ends it
  }
  return done;
}

unsigned RdmaEndpoint::give_back_sent() noexcept {
  unsigned done = 0;
  while (const tcp::SendQueue::Frame* frame = queue_.pop_sent()) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

unsigned RdmaEndpoint::receive(Nanos now, size_t budget_bytes) noexcept {
  // Whatever the peer sent before its connection's end is there once the end is seen.
  const Errc over = lifeline_over_;
  (void)pair_->collect();  // broken() tells, after what has arrived
  unsigned done = 0;
  size_t bytes = 0;
  while (!closing_ && !peer_ended_ && pair_->has_arrived()) {
    if (pair_->at_end()) {
      end_of_stream(now);
      return done + 1;
    }
    const auto segment = pair_->front();
    ++done;
    last_received_ = now;
    bytes += segment.size();
    counters_.wire_bytes_in += segment.size();
    if (const Status parsed = reader_.feed(segment, *this, handler_, counters_); !parsed.ok())
      close(parsed.code());
    if (!closing_) pair_->take();
    if (bytes >= budget_bytes) return done;
  }
  if (closing_) return done;
  if (!pair_->broken().ok()) {
    close(pair_->broken().code());
  } else if (over != Errc::kOk) {
    // Who ends in order says so on the pair first, and stays until that has arrived.
    close(over == Errc::kClosed && !peer_ended_ ? Errc::kReset : over);
  }
  return done;
}

void RdmaEndpoint::end_of_stream(Nanos now) noexcept {
  if (reader_.within_frame()) return close(Errc::kReset);
  peer_ended_ = true;
  ended_ = true;
  last_sent_ = now;
  if (queue_.empty()) close(Errc::kClosed);
}

void RdmaEndpoint::check_deadline(Nanos now) noexcept {
  if (!timed() || (!peer_ended_ && pair_->has_arrived())) return;
  if (now - (peer_ended_ ? last_sent_ : last_received_) > options_.frame_deadline) close(Errc::kTimeout);
}

void RdmaEndpoint::finish() noexcept {
  finished_ = true;
  lingers_ = reason_ != Errc::kReset;
  while (!queue_.empty()) handler_.on_sent(*this, queue_.pop()->cookie, reason_);
  handler_.on_closed(*this, reason_);
}

void RdmaEndpoint::linger() noexcept {
  const Status s = pair_->collect();
  if (s.ok() && !lifeline_is_over() && !pair_->all_arrived()) {
    (void)pair_->end();  // kWouldBlock: at a later turn; broken: so it is at the next
    return;
  }
  lingers_ = false;
}

bool RdmaEndpoint::may_sleep() noexcept {
  pair_->arm();
  if (closing()) return false;
  (void)pair_->collect();  // broken() keeps it
  if (lingers_) return pair_->broken().ok() && !lifeline_is_over() && pair_->ended() && !pair_->all_arrived();
  if (!pair_->broken().ok() || (!peer_ended_ && pair_->has_arrived()) || lifeline_is_over()) return false;
  const bool says_end = queue_.empty() && ended_ && !pair_->ended();
  return !says_end && (queue_.empty() || !pair_->can_send());
}

}  // namespace sluice::transport::rdma
