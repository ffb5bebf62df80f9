#include "transport/tcp/tcp_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace sluice::transport::tcp {
namespace {

// Blocks of one gathered send: 16 frames with payload. More is no cheaper per frame and keeps other endpoints
// waiting.
constexpr size_t kGather = 32;
// Bytes handed to the network in one turn, so that a peer that drains as fast as we fill does not keep the
// turn for itself.
constexpr size_t kSendPerTurn = 4 * kMiB;

bool would_block(int error) noexcept {
  // The kernel being short of memory for sockets passes like a full socket does.
  return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

TcpEndpoint::TcpEndpoint(Socket socket, Handle self, Handler& handler, const EndpointOptions& options,
                         Poller& poller, Agenda& agenda)
    : socket_(std::move(socket)),
      self_(self),
      handler_(handler),
      options_(options),
      poller_(poller),
      agenda_(agenda),
      queue_(std::max<size_t>(options.send_queue, 1)),
      reader_(options.max_payload, agenda.scratch),
      peer_(peer_name(socket_.fd())) {
  // Bytes that came with the handshake are announced by nothing.
  if (socket_.pending()) {
    in_receive_list_ = true;
    agenda_.receive.push_back(self_);
  }
}

TcpEndpoint::~TcpEndpoint() {
  if (socket_.valid()) socket_.end();
}

Status TcpEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                        std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_ || cannot_send()) return Errc::kClosed;
  if (!fits(header, extensions, payload)) return Errc::kInvalidArgument;
  if (queue_.full()) return Errc::kWouldBlock;
  queue_.push(header, extensions, payload, cookie);
  want_flush();
  return Errc::kOk;
}

void TcpEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  reader_.stop();
  if (timed_) --agenda_.timed;
  // A child forked by the training process may hold copies of the descriptor, so closing ours alone would
  // neither end the epoll registration nor tell the peer.
  poller_.remove(socket_.fd());
  if (reason == Errc::kReset) {
    socket_.reset();
  } else {
    socket_.end();
  }
  socket_ = Socket();
  agenda_.finish.push_back(self_);
}

void TcpEndpoint::shutdown() noexcept {
  if (closing_ || ended_) return;
  ended_ = true;
  want_flush();  // a later poll() tells the peer, even with nothing queued
}

unsigned TcpEndpoint::ready(uint32_t events, Nanos now, uint64_t turn, size_t budget_bytes) noexcept {
  unsigned done = 0;
  // An error shows in the call that meets it: the receive, or after the peer's end the send.
  const bool error = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if ((events & EPOLLOUT) != 0 || (error && peer_ended_)) done += flush(now);
  if (!closing_ && !peer_ended_ && ((events & EPOLLIN) != 0 || error))
    done += receive(now, turn, budget_bytes);
  return done;
}

unsigned TcpEndpoint::continue_receiving(Nanos now, uint64_t turn, size_t budget_bytes) noexcept {
  in_receive_list_ = false;
  return closing_ || peer_ended_ ? 0 : receive(now, turn, budget_bytes);
}

unsigned TcpEndpoint::continue_sending(Nanos now) noexcept {
  in_flush_list_ = false;
  return closing_ || waits_writable_ ? 0 : flush(now);
}

unsigned TcpEndpoint::receive(Nanos now, uint64_t turn, size_t budget_bytes) noexcept {
  if (last_turn_ == turn) return 0;
  last_turn_ = turn;
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
      end_of_stream(now);
      return done + 1;
    }
    if (n < 0) {
      if (cannot_send()) {
        close(send_error_);
      } else if (!would_block(errno)) {
        close(broken_by(errno));
      }
      return done;
    }
    ++done;
    last_received_ = now;
    counters_.wire_bytes_in += static_cast<uint64_t>(n);
    const Status parsed = reader_.consume(static_cast<size_t>(n), *this, handler_, counters_);
    if (!parsed.ok()) close(parsed.code());
    if (static_cast<size_t>(n) < asked && !cannot_send() && socket_.drained())
      break;  // the socket is empty: asking again is a wasted call
    if (counters_.wire_bytes_in - bytes_before >= budget_bytes) {
      if (!closing_ && !std::exchange(in_receive_list_, true)) agenda_.receive.push_back(self_);
      break;
    }
  }
  if (!closing_) update_timed();
  return done;
}

void TcpEndpoint::end_of_stream(Nanos now) noexcept {
  if (cannot_send()) return close(send_error_);
  if (reader_.within_frame()) return close(Errc::kReset);
  peer_ended_ = true;
  ended_ = true;
  if (queue_.empty()) return close(Errc::kClosed);
  // What was accepted before still goes out: the peer may have ended its own side only. No longer readable
  // for epoll, or it would report the end for ever.
  last_sent_ = now;
  if (!waits_writable_) blocked_since_ = now;
  poller_.modify(socket_.fd(), self_, EPOLLOUT);
  waits_writable_ = true;
  update_timed();
}

unsigned TcpEndpoint::flush(Nanos now) noexcept {
  if (waits_writable_) counters_.send_blocked_ns += static_cast<uint64_t>(now - blocked_since_);
  blocked_since_ = now;  // should it be so again
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
    if (bytes_sent >= kSendPerTurn) {
      want_writable(false);
      list_for_flush();
      return done;
    }
    size_t asked = 0;
    const size_t used = queue_.gather(blocks, asked);
    const ssize_t n = socket_.send(std::span(blocks).first(used));
    ++counters_.send_calls;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) {
        want_writable(true);
      } else {
        send_failed(broken_by(errno));
      }
      return done;
    }
    last_sent_ = now;
    bytes_sent += static_cast<size_t>(n);
    counters_.wire_bytes_out += static_cast<uint64_t>(n);
    queue_.sent(static_cast<size_t>(n));
    done += 1 + give_back_sent();
    if (static_cast<size_t>(n) < asked) {
      if (!closing_) want_writable(true);
      return done;
    }
  }
  if (!closing_ && !cannot_send()) sent_everything();
  return done;
}

unsigned TcpEndpoint::give_back_sent() noexcept {
  unsigned done = 0;
  while (const SendQueue::Frame* frame = queue_.pop_sent()) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

void TcpEndpoint::sent_everything() noexcept {
  if (peer_ended_) return close(Errc::kClosed);
  const bool tell = ended_ && !told_peer_;
  if (tell) told_peer_ = socket_.end_sending();
  want_writable(tell && !told_peer_);
}

void TcpEndpoint::send_failed(Errc why) noexcept {
  if (peer_ended_) return close(Errc::kClosed);
  // The peer may have said why before it broke the connection: take that in first.
  send_error_ = why;
  want_writable(false);
  if (!std::exchange(in_receive_list_, true)) agenda_.receive.push_back(self_);
}

void TcpEndpoint::want_flush() noexcept {
  // A put() from on_sent() is seen by the flush that called it.
  if (!waits_writable_ && !in_flush_) list_for_flush();
}

void TcpEndpoint::list_for_flush() noexcept {
  if (!std::exchange(in_flush_list_, true)) agenda_.flush.push_back(self_);
}

void TcpEndpoint::want_writable(bool wanted) noexcept {
  if (waits_writable_ == wanted) return;
  waits_writable_ = wanted;
  uint32_t events = 0;
  if (!peer_ended_) events |= EPOLLIN;
  if (wanted) events |= EPOLLOUT;
  poller_.modify(socket_.fd(), self_, events);
}

void TcpEndpoint::update_timed() noexcept {
  const bool timed = options_.frame_deadline > 0 && (reader_.within_frame() || peer_ended_);
  if (timed && !timed_) ++agenda_.timed;
  if (!timed && timed_) --agenda_.timed;
  timed_ = timed;
}

bool TcpEndpoint::overdue(Nanos now) const noexcept {
  return timed_ && !closing_ && now - (peer_ended_ ? last_sent_ : last_received_) > options_.frame_deadline;
}

void TcpEndpoint::check_deadline(Nanos now, uint64_t turn) noexcept {
  // After a long absence of the owner the bytes may be there, only not read yet.
  if (overdue(now) && !peer_ended_) receive(now, turn, 1);
  if (overdue(now)) close(Errc::kTimeout);
}

void TcpEndpoint::finish() noexcept {
  while (!queue_.empty()) handler_.on_sent(*this, queue_.pop()->cookie, reason_);
  handler_.on_closed(*this, reason_);
}

}  // namespace sluice::transport::tcp
