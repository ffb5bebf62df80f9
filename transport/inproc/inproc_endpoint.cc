#include "transport/inproc/inproc_endpoint.h"

#include <cstring>
#include <utility>

#include "core/crc32c.h"

namespace sluice::transport::inproc {

InprocEndpoint::InprocEndpoint(std::shared_ptr<Connection> connection, unsigned side, Handler& handler,
                               const EndpointOptions& options, std::string peer)
    : connection_(std::move(connection)),
      side_(side),
      handler_(handler),
      options_(options),
      peer_(std::move(peer)) {}

InprocEndpoint::~InprocEndpoint() {
  close(Errc::kClosed);
}

Status InprocEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                           std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_) return Errc::kClosed;
  if (!lengths_match(header, extensions, payload)) return Errc::kInvalidArgument;
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = out();
  if (pipe.accepted - pipe.completed == pipe.frames.size()) return Errc::kWouldBlock;
  pipe.at(pipe.accepted++).set(header, extensions, payload, cookie);
  pipe.receiver->notify_work();
  return Errc::kOk;
}

void InprocEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  const std::lock_guard lock(connection_->mutex);
  out().closed = true;
  out().reset = reason == Errc::kReset;
  out().sender->notify_work();
  out().receiver->notify_work();
}

void InprocEndpoint::shutdown() noexcept {
  if (closing_ || ended_) return;
  ended_ = true;
  const std::lock_guard lock(connection_->mutex);
  out().ended = true;
  out().receiver->notify_work();
}

bool InprocEndpoint::all_sent() const noexcept {
  const std::lock_guard lock(connection_->mutex);
  return out().received == out().accepted;
}

unsigned InprocEndpoint::poll(size_t budget_bytes) noexcept {
  // Completes sent frames before each received frame. The peer may answer from another core while this loop
  // runs, and a callback that answers in turn needs the queue space that the peer has freed.
  unsigned done = complete_received();
  size_t bytes = 0;
  while (!closing_ && bytes < budget_bytes && receive_one(bytes)) done += 1 + complete_received();
  if (!closing_) check_peer_end();
  return done;
}

unsigned InprocEndpoint::complete_received() noexcept {
  unsigned done = 0;
  for (;; ++done) {
    Cookie cookie = 0;
    {
      const std::lock_guard lock(connection_->mutex);
      Pipe& pipe = out();
      if (pipe.completed == pipe.received) return done;
      const QueuedFrame& frame = pipe.at(pipe.completed++);
      ++counters_.frames_out;
      counters_.payload_bytes_out += frame.payload_bytes;
      counters_.wire_bytes_out += frame.bytes();
      cookie = frame.cookie;
    }
    handler_.on_sent(*this, cookie, Errc::kOk);
  }
}

bool InprocEndpoint::receive_one(size_t& bytes) noexcept {
  IncomingFrame frame;
  if (!peek(frame)) return false;
  if (const Status checked = check(frame); !checked.ok()) {
    close(checked.code());
    return true;
  }
  const ReceiveTarget target = handler_.on_header(*this, frame.header, frame.extensions);
  if (closing_) return true;  // the callback closed the endpoint
  if (!target.status.ok()) {
    close(target.status.code());
    return true;
  }
  if (target.payload == nullptr && frame.header.length > 0) {
    close(Errc::kInternal);
    return true;
  }
  frame.payload = {target.payload, frame.header.length};
  if (!copy_payload(frame)) return true;
  bytes += wire::kHeaderBytes + frame.payload.size();
  if ((frame.header.flags & wire::kFlagPayloadCrc) != 0 &&
      crc32c(frame.payload) != frame.header.payload_crc) {
    close(Errc::kBadPayloadCrc);
    return true;
  }
  ++counters_.frames_in;
  counters_.payload_bytes_in += frame.payload.size();
  counters_.bytes_copied += frame.payload.size();
  counters_.wire_bytes_in += wire::kHeaderBytes + frame.extensions.size() + frame.payload.size();
  handler_.on_frame(*this, frame.header, frame.extensions, frame.payload);
  return true;
}

bool InprocEndpoint::peek(IncomingFrame& frame) noexcept {
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = in();
  if (pipe.closed || pipe.received == pipe.accepted) return false;
  frame.head = pipe.at(pipe.received).head_area;
  return true;
}

Status InprocEndpoint::check(IncomingFrame& frame) noexcept {
  const auto raw = std::span<const std::byte>(frame.head).first<wire::kHeaderBytes>();
  if (const Status s = wire::decode_header(raw, frame.header); !s.ok()) return s;
  if (frame.header.extension_bytes() > kMaxExtensionBytes) return Errc::kBadExtension;
  frame.extensions = std::span(frame.head).subspan(wire::kHeaderBytes, frame.header.extension_bytes());
  if (const Status s = wire::verify_header(raw, frame.extensions); !s.ok()) return s;
  return frame.header.length > options_.max_payload ? Errc::kBadLength : Errc::kOk;
}

// False when the sender closed since peek(): the payload buffer belongs to the sender again.
bool InprocEndpoint::copy_payload(IncomingFrame& frame) noexcept {
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = in();
  if (pipe.closed) return false;
  if (!frame.payload.empty()) {
    std::memcpy(frame.payload.data(), pipe.at(pipe.received).payload, frame.payload.size());
  }
  ++pipe.received;
  pipe.sender->notify_work();
  if (pipe.received != pipe.accepted) pipe.receiver->notify_work();  // the budget may end this poll first
  return true;
}

void InprocEndpoint::check_peer_end() noexcept {
  Errc reason = Errc::kOk;
  {
    const std::lock_guard lock(connection_->mutex);
    Pipe& from = in();
    Pipe& to = out();
    if (from.closed) {
      reason = from.reset ? Errc::kReset : Errc::kClosed;
    } else if (from.ended && from.received == from.accepted) {
      // The peer ended in order. This end sends its accepted frames, then closes too.
      ended_ = true;
      if (to.completed == to.accepted) reason = Errc::kClosed;
    }
  }
  if (reason != Errc::kOk) close(reason);
}

void InprocEndpoint::finish() noexcept {
  complete_received();
  for (;;) {
    Cookie cookie = 0;
    {
      const std::lock_guard lock(connection_->mutex);
      Pipe& pipe = out();
      if (pipe.completed == pipe.accepted) break;
      cookie = pipe.at(pipe.completed++).cookie;
    }
    handler_.on_sent(*this, cookie, reason_);
  }
  handler_.on_closed(*this, reason_);
}

}  // namespace sluice::transport::inproc
