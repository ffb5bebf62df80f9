#include "transport/rdma/rdma_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "core/assert.h"
#include "transport/tcp/address.h"
#include "transport/tcp/socket_options.h"

namespace sluice::transport::rdma {

RdmaEndpoint::RdmaEndpoint(tcp::Socket socket, std::unique_ptr<QueuePair> pair, Handler& handler,
                           const EndpointOptions& options, tcp::TcpContext& context,
                           std::span<std::byte> scratch)
    : socket_(std::move(socket)),
      pair_(std::move(pair)),
      handler_(handler),
      options_(options),
      context_(context),
      socket_watcher_(*this),
      pair_watcher_(*pair_),
      outbox_(std::max<size_t>(options.send_queue, 1)),
      reader_(options.max_payload, scratch),
      receive_handler_(*this),
      peer_(tcp::peer_name(socket_.fd())) {
  tcp::enable_keepalive(socket_.fd());
}

RdmaEndpoint::~RdmaEndpoint() {
  if (watches_pair_) context_.unwatch(pair_->event_fd(), pair_handle_);
  unwatch_socket();
  if (reason_ != Errc::kReset) socket_.shutdown();
}

Result<void> RdmaEndpoint::watch() {
  auto pair_handle = context_.watch(pair_->event_fd(), pair_watcher_);
  if (!pair_handle) return tl::unexpected(pair_handle.error());
  pair_handle_ = *pair_handle;
  watches_pair_ = true;
  auto socket_handle = context_.watch(socket_.fd(), socket_watcher_);
  if (!socket_handle) return tl::unexpected(socket_handle.error());
  socket_handle_ = *socket_handle;
  watches_socket_ = true;
  return {};
}

void RdmaEndpoint::unwatch_socket() noexcept {
  if (std::exchange(watches_socket_, false)) context_.unwatch(socket_.fd(), socket_handle_);
}

// The peer sends nothing on the TCP connection, so a byte is a protocol error.
void RdmaEndpoint::on_socket_readable() noexcept {
  std::byte byte;
  const ssize_t n = ::recv(socket_.fd(), &byte, sizeof byte, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (n == 0) socket_end_ = Errc::kClosed;
  if (n < 0) socket_end_ = tcp::close_reason(errno);
  if (n > 0) socket_end_ = Errc::kBadType;
  unwatch_socket();
}

Status RdmaEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                         std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || puts_refused_ || !pair_->error().ok()) return Errc::kClosed;
  if (!lengths_match(header, extensions, payload)) return Errc::kInvalidArgument;
  if (outbox_.full()) return Errc::kWouldBlock;
  outbox_.push(header, extensions, payload, cookie);
  return Errc::kOk;
}

void RdmaEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  reader_.stop();
  if (reason != Errc::kReset) {
    // On kWouldBlock drain() tries again. After an error, the end of the TCP connection informs the peer.
    (void)pair_->send_end();
    return;
  }
  unwatch_socket();
  socket_.reset();
}

// After this the device accesses neither payload nor advertised buffers of this endpoint. Unless only buffers
// of this connection alone are advertised, that breaks the queue pair and drops the bytes in flight.
void RdmaEndpoint::release_memory() noexcept {
  const bool peer_may_write = has_advertised_buffers() && !pair_->has_own_buffers();
  if (peer_may_write || outbox_.device_reads_payload(pair_->sends_done())) pair_->abort();
  pair_->revoke_own_buffers();
}

void RdmaEndpoint::close_without_callbacks() noexcept {
  close(Errc::kClosed);
  if (!finished_) release_memory();
  if (!finished_) draining_ = reason_ != Errc::kReset;
  finished_ = true;
}

unsigned RdmaEndpoint::poll(Nanos now, size_t budget_bytes) noexcept {
  if (draining_) drain();
  if (closing_) return 0;
  unsigned done = flush(now);
  if (!closing_) done += receive(now, budget_bytes);
  if (!closing_) done += flush(now);  // the puts of the callbacks
  if (!closing_) check_deadline(now);
  counters_.work_requests = pair_->work_counters().work_requests;
  counters_.post_calls = pair_->work_counters().post_calls;
  counters_.completions = pair_->work_counters().completions;
  return done;
}

// The info goes with the next segment, or in a segment without other bytes.
bool RdmaEndpoint::has_segment_info() noexcept {
  return must_send_recall_ || must_send_recalled_ ||
         (!awaiting_recalled_ && advertised_.next_unsent() != nullptr);
}

// Advertises nothing during a recall, because the peer gives up every buffer that it knows when it answers.
void RdmaEndpoint::advertise_buffers() noexcept {
  while (!closing_ && !puts_refused_ && !awaiting_recalled_ && !advertised_.full()) {
    const RemoteBuffer buffer = handler_.advertise(*this);
    if (buffer.payload == nullptr) return;
    const Region* region = pair_->find_device_only_region(buffer.payload, buffer.capacity);
    if (region == nullptr) region = pair_->find_region(buffer.payload, buffer.capacity);
    const bool is_useful = region != nullptr && region->remote_writable &&
                           (region->device_only || buffer.capacity >= kMinPlacedBytes);
    if (!is_useful) continue;  // its payload arrives in segments
    const bool in_order =
        advertised_.push({.frame = {.view_version = buffer.view_version, .sequence = buffer.sequence},
                          .address = reinterpret_cast<uintptr_t>(buffer.payload),
                          .key = region->remote_key,
                          .capacity = buffer.capacity,
                          .in_place_only = region->device_only});
    SLUICE_ASSERT(in_order);
  }
}

void RdmaEndpoint::recall() noexcept {
  advertised_.drop_unsent();
  if (awaiting_recalled_ || !advertised_.has_sent()) return;
  awaiting_recalled_ = must_send_recall_ = true;
}

// Writes the buffers to advertise to the beginning of `segment`.
SegmentInfo RdmaEndpoint::write_segment_info(std::span<std::byte> segment, size_t& used) noexcept {
  constexpr size_t kHead = wire::kHeaderBytes + kMaxExtensionBytes;
  SegmentInfo info{.recall = std::exchange(must_send_recall_, false),
                   .recalled = std::exchange(must_send_recalled_, false)};
  while (!awaiting_recalled_ && info.buffers_in_front < kMaxBuffersPerSegment &&
         segment.size() - used >= kHead + kAdvertisedBufferBytes) {
    const AdvertisedBuffer* const buffer = advertised_.next_unsent();
    if (buffer == nullptr) break;
    encode(*buffer, segment.subspan(used).first<kAdvertisedBufferBytes>());
    used += kAdvertisedBufferBytes;
    ++info.buffers_in_front;
    advertised_.mark_sent();
  }
  return info;
}

// True when the CPU must not access the next payload and the peer has not advertised a sufficient buffer.
bool RdmaEndpoint::waits_for_buffer() noexcept {
  const Outbox::Frame* const frame = outbox_.next_unstarted();
  if (frame == nullptr || frame->payload_bytes == 0) return false;
  if (pair_->find_device_only_region(frame->payload, frame->payload_bytes) == nullptr) return false;
  const AdvertisedBuffer* const buffer = frame->is_data ? peer_buffers_.find(frame->id) : nullptr;
  return buffer == nullptr || frame->payload_bytes > buffer->capacity;
}

// Sends one segment: one placed frame's header, or bytes of as many frames as fit. False: nothing was sent.
bool RdmaEndpoint::send_next() noexcept {
  const std::span<std::byte> segment = pair_->next_segment();
  if (segment.empty()) return false;
  bool waits = waits_for_buffer();
  if ((waits || !outbox_.has_unsent()) && !has_segment_info()) return false;
  size_t used = 0;
  const SegmentInfo info = write_segment_info(segment, used);
  size_t stream_bytes = 0;
  while (const Outbox::Frame* const frame = outbox_.next_unstarted()) {
    if ((waits = waits_for_buffer())) break;
    const bool is_data = frame->is_data;
    const FrameId id = frame->id;
    const AdvertisedBuffer* const buffer = is_data ? peer_buffers_.find(id) : nullptr;
    const Region* region = nullptr;
    if (buffer != nullptr && frame->payload_bytes <= buffer->capacity) {
      region = pair_->find_device_only_region(frame->payload, frame->payload_bytes);
      const bool worth_placing = frame->payload_bytes >= kMinPlacedBytes || buffer->in_place_only;
      if (region == nullptr && worth_placing)
        region = pair_->find_region(frame->payload, frame->payload_bytes);
    }
    if (region == nullptr) {
      const size_t copied = outbox_.copy_next(segment.subspan(used));
      if (copied == 0) break;
      if (is_data) (void)peer_buffers_.consume(id);
      used += copied;
      stream_bytes += copied;
      continue;
    }
    if (stream_bytes > 0) break;  // a placed frame has a segment of its own
    const AdvertisedBuffer target = *peer_buffers_.consume(id);
    std::ranges::copy(frame->head(), segment.begin() + static_cast<ptrdiff_t>(used));
    used += frame->head_bytes;
    counters_.wire_bytes_out += frame->head_bytes + frame->payload_bytes;
    const Status sent = pair_->send_placed(frame->body(), region->local_key, target, used, info);
    // After an error the write may have been posted without the send. The device may then read the payload
    // until the queue pair is destroyed, so the payload waits for a send that never completes.
    outbox_.mark_sent(pair_->sends_posted() + (sent.ok() ? 0 : 1));
    return sent.ok();
  }
  if (stream_bytes == 0 && !waits) {
    // Continues a frame, or sends the info alone.
    stream_bytes = outbox_.copy_next(segment.subspan(used));
    used += stream_bytes;
  }
  counters_.wire_bytes_out += stream_bytes;
  return pair_->send(used, info).ok();  // on an error, receive() closes after the received segments
}

unsigned RdmaEndpoint::flush(Nanos now) noexcept {
  advertise_buffers();
  unsigned done = complete_puts();
  while (!closing_ && send_next()) {
    last_sent_ = now;
    done += 1 + complete_puts();
  }
  counters_.bytes_copied_out = outbox_.bytes_copied();
  const bool waits = !closing_ && waits_for_buffer();
  if (!waits || done > 0) waiting_since_ = 0;
  if (waits && waiting_since_ == 0) waiting_since_ = std::max<Nanos>(now, 1);
  if (closing_ || outbox_.has_unsent()) return done;
  if (peer_ended_) {
    if (outbox_.empty()) close(Errc::kClosed);
  } else if (puts_refused_ && !pair_->has_sent_end()) {
    (void)pair_->send_end();  // on kWouldBlock again in a later poll(); on an error receive() closes
  }
  return done;
}

unsigned RdmaEndpoint::complete_puts() noexcept {
  unsigned done = 0;
  while (const Outbox::Frame* frame = outbox_.pop_completed(pair_->sends_done())) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

ReceiveTarget RdmaEndpoint::ReceiveHandler::on_header(Endpoint& ep, const wire::FrameHeader& header,
                                                      std::span<const std::byte> extensions) noexcept {
  buffer.reset();
  device_only = false;
  const bool is_data = wire::is_data(header.type);
  if (is_data) {
    buffer = endpoint.advertised_.consume({.view_version = header.view_version, .sequence = header.sequence});
  }
  const ReceiveTarget target = endpoint.handler_.on_header(ep, header, extensions);
  if (!is_data || !target.status.ok() || header.length == 0) return target;
  const bool to_device = endpoint.pair_->find_device_only_region(target.payload, header.length) != nullptr;
  device_only = to_device || (placed && buffer && buffer->in_place_only);
  // A payload that is not already in its target would have to be copied by the CPU.
  const bool in_place = placed && buffer && buffer->address == reinterpret_cast<uintptr_t>(target.payload);
  return device_only && !in_place ? ReceiveTarget{.status = Errc::kUnsupported} : target;
}

Status RdmaEndpoint::read_advertised_buffers(std::span<const std::byte>& bytes,
                                             const SegmentInfo& info) noexcept {
  if (info.buffers_in_front > kMaxBuffersPerSegment) return Errc::kBadField;
  if (bytes.size() < info.buffers_in_front * kAdvertisedBufferBytes) return Errc::kBadLength;
  for (uint32_t i = 0; i < info.buffers_in_front; ++i) {
    if (!peer_buffers_.push(decode_advertised_buffer(bytes.first<kAdvertisedBufferBytes>())))
      return Errc::kBadField;
    bytes = bytes.subspan(kAdvertisedBufferBytes);
  }
  return Errc::kOk;
}

Status RdmaEndpoint::handle_segment(const QueuePair::Segment& segment) noexcept {
  std::span<const std::byte> bytes = segment.bytes;
  if (segment.info.recall) {
    peer_buffers_.clear();
    must_send_recalled_ = true;
  }
  if (segment.info.recalled) {
    if (!awaiting_recalled_ || must_send_recall_) return Errc::kUnexpectedMessage;
    awaiting_recalled_ = false;
    advertised_.clear();
  }
  if (const Status s = read_advertised_buffers(bytes, segment.info); !s.ok()) return s;
  counters_.wire_bytes_in += bytes.size();
  receive_handler_.placed = segment.info.placed;
  if (!segment.info.placed)
    return bytes.empty() ? Status(Errc::kOk) : reader_.feed(bytes, *this, receive_handler_, counters_);
  receive_handler_.buffer.reset();
  if (const Status s = reader_.feed_placed_header(bytes, *this, receive_handler_); !s.ok()) return s;
  if (closing_) return Errc::kOk;
  const std::optional<AdvertisedBuffer>& buffer = receive_handler_.buffer;
  if (!buffer || reader_.header().length > buffer->capacity) return Errc::kSlotNotGranted;
  counters_.wire_bytes_in += reader_.header().length;
  pair_->add_placed_bytes(reader_.header().length);
  if (receive_handler_.device_only) return reader_.complete_placed_unread(*this, receive_handler_, counters_);
  return reader_.complete_placed(reinterpret_cast<const std::byte*>(buffer->address), *this, receive_handler_,
                                 counters_);
}

unsigned RdmaEndpoint::receive(Nanos now, size_t budget_bytes) noexcept {
  // Read before the completions, so that all that the peer sent before this end is received first.
  const Errc socket_end = socket_end_;
  (void)pair_->poll_completions();  // error() is checked after the received segments
  unsigned done = 0;
  const uint64_t bytes_before = counters_.wire_bytes_in;
  while (!closing_ && !peer_ended_ && pair_->has_received()) {
    if (pair_->is_at_end()) {
      handle_peer_end(now);
      return done + 1;
    }
    ++done;
    last_received_ = now;
    if (const Status handled = handle_segment(pair_->front_segment()); !handled.ok()) close(handled.code());
    if (!closing_) pair_->pop_segment();
    if (counters_.wire_bytes_in - bytes_before >= budget_bytes) return done;
  }
  if (closing_) return done;
  if (!pair_->error().ok()) {
    close(pair_->error().code());
  } else if (socket_end != Errc::kOk) {
    // In an orderly end, the end on the queue pair comes before the end of the connection.
    close(socket_end == Errc::kClosed && !peer_ended_ ? Errc::kReset : socket_end);
  }
  return done;
}

void RdmaEndpoint::handle_peer_end(Nanos now) noexcept {
  if (reader_.within_frame()) return close(Errc::kReset);
  peer_ended_ = true;
  puts_refused_ = true;
  last_sent_ = now;
  if (outbox_.empty()) close(Errc::kClosed);
}

void RdmaEndpoint::check_deadline(Nanos now) noexcept {
  if (!has_deadline() || (!peer_ended_ && pair_->has_received())) return;
  if (waiting_since_ != 0 && now - waiting_since_ > options_.frame_deadline) return close(Errc::kUnsupported);
  if (!peer_ended_ && !reader_.within_frame()) return;
  if (now - (peer_ended_ ? last_sent_ : last_received_) > options_.frame_deadline) close(Errc::kTimeout);
}

void RdmaEndpoint::finish() noexcept {
  release_memory();
  finished_ = true;
  draining_ = reason_ != Errc::kReset;
  while (!outbox_.empty()) handler_.on_sent(*this, outbox_.pop()->cookie, reason_);
  handler_.on_closed(*this, reason_);
}

void RdmaEndpoint::drain() noexcept {
  const Status s = pair_->poll_completions();
  if (s.ok() && !socket_ended() && !pair_->has_delivered_all()) {
    (void)pair_->send_end();  // on kWouldBlock again in the next poll(), which also detects an error
    return;
  }
  draining_ = false;
}

bool RdmaEndpoint::may_sleep() noexcept {
  pair_->arm();
  if (is_closing()) return false;
  (void)pair_->poll_completions();  // error() keeps the result
  if (draining_) {
    return pair_->error().ok() && !socket_ended() && pair_->has_sent_end() && !pair_->has_delivered_all();
  }
  if (!pair_->error().ok() || (!peer_ended_ && pair_->has_received()) || socket_ended()) return false;
  // No event announces a completion that poll_completions() has just handled.
  if (outbox_.has_completed(pair_->sends_done())) return false;
  const bool must_send_end = !outbox_.has_unsent() && puts_refused_ && !peer_ended_ && !pair_->has_sent_end();
  // The advertisement of an awaited buffer raises an event, like every segment.
  const bool can_send_bytes = outbox_.has_unsent() && !waits_for_buffer();
  const bool can_send = (can_send_bytes || has_segment_info()) && pair_->can_send();
  return !must_send_end && !can_send;
}

}  // namespace sluice::transport::rdma
