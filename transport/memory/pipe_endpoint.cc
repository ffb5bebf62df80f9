#include "transport/memory/pipe_endpoint.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "core/crc32c.h"

namespace sluice::transport::memory {

PipeEndpoint::PipeEndpoint(PipeEnd& end, Handler& handler, Options options, std::shared_ptr<Waker> waker)
    : connection_(end.release_connection()),
      side_(end.side()),
      handler_(handler),
      options_(std::move(options)) {
  out().open(std::max<size_t>(options_.endpoint.send_queue, 1));
  connection_->set_waker(side_, std::move(waker));
}

PipeEndpoint::~PipeEndpoint() {
  close(Errc::kClosed);
  // The callers may free their payloads after this. A copy is short, and the peer never waits for this side.
  while (out().has_claim()) std::this_thread::yield();
}

Status PipeEndpoint::put(const wire::FrameHeader& header, std::span<const std::byte> extensions,
                         std::span<const std::byte> payload, Cookie cookie) noexcept {
  if (closing_ || ended_) return Errc::kClosed;
  if (!lengths_match(header, extensions, payload)) return Errc::kInvalidArgument;
  if (!out().try_put(header, extensions, payload, cookie)) return Errc::kWouldBlock;
  notify_peer();
  return Errc::kOk;
}

void PipeEndpoint::close(Errc reason) noexcept {
  if (closing_) return;
  closing_ = true;
  reason_ = reason;
  out().close(reason == Errc::kReset);
  notify_self();
  notify_peer();
}

void PipeEndpoint::shutdown() noexcept {
  if (closing_ || ended_) return;
  ended_ = true;
  out().end();
  notify_peer();
}

// The peer is notified once, and not for each frame: a sleeping peer needs to be woken once for all
// completions, and it usually waits for the answers.
unsigned PipeEndpoint::poll(size_t budget_bytes) noexcept {
  // Completes sent frames before each received frame. The peer may answer from another core while this loop
  // runs, and a callback that answers in turn needs the queue space that the peer has freed.
  unsigned done = complete_received();
  size_t bytes = 0;
  bool received = false;
  while (!closing_ && bytes < budget_bytes && receive_one(bytes)) {
    received = true;
    done += 1 + complete_received();
  }
  if (received) notify_peer();
  if (closing_) return done;
  check_peer_end();
  if (in().front() != nullptr) notify_self();  // the budget ended this poll
  return done;
}

unsigned PipeEndpoint::complete_received() noexcept {
  unsigned done = 0;
  while (const QueuedFrame* const frame = out().pop_received()) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    if (!options_.is_in_memory) counters_.wire_bytes_out += frame->bytes();
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

bool PipeEndpoint::receive_one(size_t& bytes) noexcept {
  const QueuedFrame* const front = in().front();
  if (front == nullptr) return false;
  IncomingFrame frame;
  std::ranges::copy(front->head(), frame.head.begin());
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
  if (!options_.is_in_memory)
    counters_.wire_bytes_in += wire::kHeaderBytes + frame.extensions.size() + frame.payload.size();
  handler_.on_frame(*this, frame.header, frame.extensions, frame.payload);
  return true;
}

Status PipeEndpoint::check(IncomingFrame& frame) noexcept {
  const auto raw = std::span<const std::byte>(frame.head).first<wire::kHeaderBytes>();
  if (const Status s = wire::decode_header(raw, frame.header); !s.ok()) return s;
  if (frame.header.extension_bytes() > kMaxExtensionBytes) return Errc::kBadExtension;
  frame.extensions = std::span(frame.head).subspan(wire::kHeaderBytes, frame.header.extension_bytes());
  if (const Status s = wire::verify_header(raw, frame.extensions); !s.ok()) return s;
  return frame.header.length > options_.endpoint.max_payload ? Errc::kBadLength : Errc::kOk;
}

// False when the sender closed since front(): the payload buffer belongs to the sender again.
bool PipeEndpoint::copy_payload(IncomingFrame& frame) noexcept {
  const QueuedFrame* const claimed = in().claim();
  if (claimed == nullptr) return false;
  if (!frame.payload.empty()) std::memcpy(frame.payload.data(), claimed->payload, frame.payload.size());
  in().receive_claimed();
  return true;
}

void PipeEndpoint::check_peer_end() noexcept {
  const Pipe::State state = in().state();
  if (Pipe::is_closed(state)) return close(state == Pipe::State::kReset ? Errc::kReset : Errc::kClosed);
  if (state != Pipe::State::kEnded || !in().all_received()) return;
  // The peer ended in order. This end sends its accepted frames, then closes too.
  ended_ = true;
  if (out().all_completed()) close(Errc::kClosed);
}

void PipeEndpoint::finish() noexcept {
  complete_received();
  while (const QueuedFrame* const frame = out().pop()) handler_.on_sent(*this, frame->cookie, reason_);
  handler_.on_closed(*this, reason_);
}

}  // namespace sluice::transport::memory
