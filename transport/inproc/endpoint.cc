#include "transport/inproc/endpoint.h"

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
  if (!fits(header, extensions, payload)) return Errc::kInvalidArgument;
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = out();
  if (pipe.put - pipe.given_back == pipe.frames.size()) return Errc::kWouldBlock;
  QueuedFrame& frame = pipe.at(pipe.put);
  wire::encode_header(header, extensions, frame.header);
  if (!extensions.empty()) std::memcpy(frame.extensions.data(), extensions.data(), extensions.size());
  frame.payload = payload.data();
  frame.payload_bytes = header.length;
  frame.wire_bytes = static_cast<uint32_t>(wire::kHeaderBytes + extensions.size() + payload.size());
  frame.cookie = cookie;
  ++pipe.put;
  pipe.receiver->work();
  return Errc::kOk;
}

void InprocEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  const std::lock_guard lock(connection_->mutex);
  out().closed = true;
  out().reset = reason == Errc::kReset;
  out().sender->work();
  out().receiver->work();
}

void InprocEndpoint::shutdown() noexcept {
  if (closing_ || ended_) return;
  ended_ = true;
  const std::lock_guard lock(connection_->mutex);
  out().ended = true;
  out().receiver->work();
}

bool InprocEndpoint::idle() const noexcept {
  const std::lock_guard lock(connection_->mutex);
  return out().taken == out().put;
}

unsigned InprocEndpoint::turn(size_t budget_bytes) noexcept {
  // Before each frame: a peer on another core answers as fast as this loop takes, and a callback that answers
  // in turn must find the room that the peer has already made.
  unsigned done = give_back_taken();
  size_t bytes = 0;
  while (!closing_ && bytes < budget_bytes && receive_one(bytes)) done += 1 + give_back_taken();
  if (!closing_) look_for_end();
  return done;
}

unsigned InprocEndpoint::give_back_taken() noexcept {
  unsigned done = 0;
  for (;; ++done) {
    Cookie cookie = 0;
    {
      const std::lock_guard lock(connection_->mutex);
      Pipe& pipe = out();
      if (pipe.given_back == pipe.taken) return done;
      const QueuedFrame& frame = pipe.at(pipe.given_back++);
      ++counters_.frames_out;
      counters_.payload_bytes_out += frame.payload_bytes;
      counters_.wire_bytes_out += frame.wire_bytes;
      cookie = frame.cookie;
    }
    handler_.on_sent(*this, cookie, Errc::kOk);
  }
}

bool InprocEndpoint::receive_one(size_t& bytes) noexcept {
  Arriving frame;
  if (!peek(frame)) return false;
  if (const Status checked = check(frame); !checked.ok()) {
    close(checked.code());
    return true;
  }
  const Placement place = handler_.on_header(*this, frame.header, frame.extensions);
  if (closing_) return true;  // by the callback
  if (!place.status.ok()) {
    close(place.status.code());
    return true;
  }
  if (place.payload == nullptr && frame.header.length > 0) {
    close(Errc::kInternal);
    return true;
  }
  frame.payload = {place.payload, frame.header.length};
  if (!take(frame)) return true;
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

bool InprocEndpoint::peek(Arriving& frame) noexcept {
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = in();
  if (pipe.closed || pipe.taken == pipe.put) return false;
  frame.raw = pipe.at(pipe.taken).header;
  frame.extension_bytes = pipe.at(pipe.taken).extensions;
  return true;
}

Status InprocEndpoint::check(Arriving& frame) noexcept {
  if (const Status s = wire::decode_header(frame.raw, frame.header); !s.ok()) return s;
  if (frame.header.extension_bytes() > kMaxExtensions) return Errc::kBadExtension;
  frame.extensions = std::span(frame.extension_bytes).first(frame.header.extension_bytes());
  if (const Status s = wire::verify_header(frame.raw, frame.extensions); !s.ok()) return s;
  return frame.header.length > options_.max_payload ? Errc::kBadLength : Errc::kOk;
}

// False when the sender closed since peek(): its buffer is its own again.
bool InprocEndpoint::take(Arriving& frame) noexcept {
  const std::lock_guard lock(connection_->mutex);
  Pipe& pipe = in();
  if (pipe.closed) return false;
  if (!frame.payload.empty()) {
    std::memcpy(frame.payload.data(), pipe.at(pipe.taken).payload, frame.payload.size());
  }
  ++pipe.taken;
  pipe.sender->work();
  if (pipe.taken != pipe.put) pipe.receiver->work();  // the budget may end this turn first
  return true;
}

void InprocEndpoint::look_for_end() noexcept {
  Errc reason = Errc::kOk;
  {
    const std::lock_guard lock(connection_->mutex);
    Pipe& from = in();
    Pipe& to = out();
    if (from.closed) {
      reason = from.reset ? Errc::kReset : Errc::kClosed;
    } else if (from.ended && from.taken == from.put) {
      // The peer ended in order: what was accepted before still goes out, then this end closes too.
      ended_ = true;
      if (to.given_back == to.put) reason = Errc::kClosed;
    }
  }
  if (reason != Errc::kOk) close(reason);
}

void InprocEndpoint::finish() noexcept {
  give_back_taken();
  for (;;) {
    Cookie cookie = 0;
    {
      const std::lock_guard lock(connection_->mutex);
      Pipe& pipe = out();
      if (pipe.given_back == pipe.put) break;
      cookie = pipe.at(pipe.given_back++).cookie;
    }
    handler_.on_sent(*this, cookie, reason_);
  }
  handler_.on_closed(*this, reason_);
}

}  // namespace sluice::transport::inproc
