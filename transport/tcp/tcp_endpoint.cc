#include "transport/tcp/tcp_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "transport/tcp/address.h"

namespace sluice::transport::tcp {
namespace {

// Blocks of one gathered send: 16 frames with payload. More make no frame cheaper and delay other endpoints.
constexpr size_t kGather = 32;
// Maximum bytes sent in one poll; otherwise a fast reader would block the other endpoints.
constexpr size_t kMaxSendPerPoll = 4 * kMiB;

bool would_block(int error) noexcept {
  // A lack of kernel memory for sockets is temporary, like a full socket.
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

TcpEndpoint::TcpEndpoint(Socket socket, Handle self, Handler& handler, const EndpointOptions& options,
                         Poller& poller, PendingWork& pending)
    : socket_(std::move(socket)),
      self_(self),
      handler_(handler),
      options_(options),
      poller_(poller),
      pending_(pending),
      queue_(std::max<size_t>(options.send_queue, 1)),
      reader_(options.max_payload, pending.scratch),
      peer_(peer_name(socket_.fd())) {
  // No event announces bytes that TLS read together with the handshake.
  if (socket_.has_pending_bytes()) {
    in_receive_list_ = true;
    pending_.receive.push_back(self_);
  }
}

TcpEndpoint::~TcpEndpoint() {
  if (socket_.valid()) socket_.shutdown();
}

Status TcpEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                        std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_ || cannot_send()) return Errc::kClosed;
  if (!lengths_match(header, extensions, payload)) return Errc::kInvalidArgument;
  if (queue_.full()) return Errc::kWouldBlock;
  queue_.push(header, extensions, payload, cookie);
  request_flush();
  return Errc::kOk;
}

void TcpEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  reader_.stop();
  if (timed_) --pending_.timed;
  // A forked child may hold a copy of the descriptor; then close() alone would not end the connection.
  poller_.remove(socket_.fd());
  if (reason == Errc::kReset) {
    socket_.reset();
  } else {
    socket_.shutdown();
  }
  socket_ = Socket();
  pending_.finish.push_back(self_);
}

void TcpEndpoint::shutdown() noexcept {
  if (closing_ || ended_) return;
  ended_ = true;
  request_flush();  // a later poll() tells the peer, even with an empty queue
}

unsigned TcpEndpoint::ready(uint32_t events, Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept {
  unsigned done = 0;
  // The next call reports an error: the receive, or the send after the peer has ended.
  const bool error = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if ((events & EPOLLOUT) != 0 || (error && peer_ended_)) done += flush(now);
  if (!closing_ && !peer_ended_ && ((events & EPOLLIN) != 0 || error))
    done += receive(now, poll_number, budget_bytes);
  return done;
}

unsigned TcpEndpoint::continue_receiving(Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept {
  in_receive_list_ = false;
  return closing_ || peer_ended_ ? 0 : receive(now, poll_number, budget_bytes);
}

unsigned TcpEndpoint::continue_sending(Nanos now) noexcept {
  in_flush_list_ = false;
  return closing_ || waits_writable_ ? 0 : flush(now);
}

unsigned TcpEndpoint::receive(Nanos now, uint64_t poll_number, size_t budget_bytes) noexcept {
  if (last_poll_ == poll_number) return 0;
  last_poll_ = poll_number;
  unsigned done = 0;
  const uint64_t bytes_before = counters_.wire_bytes_in;
  std::array<iovec, FrameReader::kBlocks> buffers;
  while (!closing_) {
    const auto blocks = std::span(buffers).first(reader_.buffers(*this, handler_, buffers));
    size_t asked = 0;
    for (const iovec& block : blocks) asked += block.iov_len;
    const ssize_t n = socket_.receive(blocks);
    ++counters_.receive_calls;
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) {
      on_peer_end(now);
      return done + 1;
    }
    if (n < 0) {
      if (cannot_send()) {
        close(send_error_);
      } else if (!would_block(errno)) {
        close(close_reason(errno));
      }
      return done;
    }
    ++done;
    last_received_ = now;
    counters_.wire_bytes_in += static_cast<uint64_t>(n);
    const Status parsed = reader_.consume(static_cast<size_t>(n), *this, handler_, counters_);
    if (!parsed.ok()) close(parsed.code());
    if (static_cast<size_t>(n) < asked && !cannot_send() && socket_.is_drained())
      break;  // the socket is empty; another call would be wasted
    if (counters_.wire_bytes_in - bytes_before >= budget_bytes) {
      if (!closing_ && !std::exchange(in_receive_list_, true)) pending_.receive.push_back(self_);
      break;
    }
  }
  if (!closing_) update_timed();
  return done;
}

void TcpEndpoint::on_peer_end(Nanos now) noexcept {
  if (cannot_send()) return close(send_error_);
  if (reader_.within_frame()) return close(Errc::kReset);
  peer_ended_ = true;
  ended_ = true;
  if (queue_.empty()) return close(Errc::kClosed);
  // Accepted frames are still sent, because the peer may have closed its sending side only. EPOLLIN is
  // removed; otherwise epoll would report the end in every call.
  last_sent_ = now;
  if (!waits_writable_) blocked_since_ = now;
  poller_.modify(socket_.fd(), self_, EPOLLOUT);
  waits_writable_ = true;
  update_timed();
}

unsigned TcpEndpoint::flush(Nanos now) noexcept {
  if (waits_writable_) counters_.send_blocked_ns += static_cast<uint64_t>(now - blocked_since_);
  blocked_since_ = now;  // used if the socket is full again
  in_flush_ = true;
  const unsigned done = send_queued(now);
  in_flush_ = false;
  return done;
}

unsigned TcpEndpoint::send_queued(Nanos now) noexcept {
  unsigned done = 0;
  size_t bytes_sent = 0;
  std::array<iovec, kGather> blocks;
  while (!closing_ && !cannot_send() && !queue_.empty()) {
    if (bytes_sent >= kMaxSendPerPoll) {
      set_wait_writable(false);
      add_to_flush_list();
      return done;
    }
    size_t asked = 0;
    const size_t used = queue_.gather(blocks, asked);
    const ssize_t n = socket_.send(std::span(blocks).first(used));
    ++counters_.send_calls;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) {
        set_wait_writable(true);
      } else {
        on_send_error(close_reason(errno));
      }
      return done;
    }
    last_sent_ = now;
    bytes_sent += static_cast<size_t>(n);
    counters_.wire_bytes_out += static_cast<uint64_t>(n);
    queue_.advance(static_cast<size_t>(n));
    done += 1 + complete_sent();
    if (static_cast<size_t>(n) < asked) {
      if (!closing_) set_wait_writable(true);
      return done;
    }
  }
  if (!closing_ && !cannot_send()) on_queue_empty();
  return done;
}

unsigned TcpEndpoint::complete_sent() noexcept {
  unsigned done = 0;
  while (const SendQueue::Frame* frame = queue_.pop_sent()) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

void TcpEndpoint::on_queue_empty() noexcept {
  if (peer_ended_) return close(Errc::kClosed);
  const bool send_end = ended_ && !end_sent_;
  if (send_end) end_sent_ = socket_.shutdown_send();
  set_wait_writable(send_end && !end_sent_);
}

void TcpEndpoint::on_send_error(Errc reason) noexcept {
  if (peer_ended_) return close(Errc::kClosed);
  // The peer may have sent its reason before the connection broke, so received bytes are processed first.
  send_error_ = reason;
  set_wait_writable(false);
  if (!std::exchange(in_receive_list_, true)) pending_.receive.push_back(self_);
}

void TcpEndpoint::request_flush() noexcept {
  // During a flush no request is needed: the flush also sends frames that on_sent() puts.
  if (!waits_writable_ && !in_flush_) add_to_flush_list();
}

void TcpEndpoint::add_to_flush_list() noexcept {
  if (!std::exchange(in_flush_list_, true)) pending_.flush.push_back(self_);
}

void TcpEndpoint::set_wait_writable(bool wait) noexcept {
  if (waits_writable_ == wait) return;
  waits_writable_ = wait;
  uint32_t events = 0;
  if (!peer_ended_) events |= EPOLLIN;
  if (wait) events |= EPOLLOUT;
  poller_.modify(socket_.fd(), self_, events);
}

void TcpEndpoint::update_timed() noexcept {
  const bool timed = options_.frame_deadline > 0 && (reader_.within_frame() || peer_ended_);
  if (timed && !timed_) ++pending_.timed;
  if (!timed && timed_) --pending_.timed;
  timed_ = timed;
}

bool TcpEndpoint::is_overdue(Nanos now) const noexcept {
  return timed_ && !closing_ && now - (peer_ended_ ? last_sent_ : last_received_) > options_.frame_deadline;
}

void TcpEndpoint::check_deadline(Nanos now, uint64_t poll_number) noexcept {
  // If the owner has not polled for long, the bytes may have arrived but not been read yet.
  if (is_overdue(now) && !peer_ended_) receive(now, poll_number, 1);
  if (is_overdue(now)) close(Errc::kTimeout);
}

void TcpEndpoint::finish() noexcept {
  while (!queue_.empty()) handler_.on_sent(*this, queue_.pop()->cookie, reason_);
  handler_.on_closed(*this, reason_);
}

}  // namespace sluice::transport::tcp
