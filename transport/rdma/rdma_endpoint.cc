#include "transport/rdma/rdma_endpoint.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "core/assert.h"

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
      outbox_(std::max<size_t>(options.send_queue, 1)),
      reader_(options.max_payload, scratch),
      intake_(*this),
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
    (void)pair_->end();  // kWouldBlock: while it lingers; broken: the lifeline's end is all there is to say
    return;
  }
  unwatch_lifeline();
  lifeline_.reset();
}

// From here on the device reads no payload of ours and writes to no place of ours. That ends the pair, and
// what is still on its way with it, unless only what this connection alone lends is out.
void RdmaEndpoint::let_go_of_memory() noexcept {
  const bool peer_writes = lent() && !pair_->lends_its_own();
  if (peer_writes || outbox_.reads_payload(pair_->sends_done())) pair_->cut();
  pair_->withdraw();
}

void RdmaEndpoint::leave() noexcept {
  close(Errc::kClosed);
  if (!finished_) let_go_of_memory();
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
  counters_.work_requests = pair_->counts().work_requests;
  counters_.doorbells = pair_->counts().doorbells;
  counters_.completions = pair_->counts().completions;
  return done;
}

// What goes with the next segment, or is a segment of its own.
bool RdmaEndpoint::has_notes() noexcept {
  return recall_due_ || recalled_due_ || (!recalling_ && lent_.next_untold() != nullptr);
}

// Not while a recall is under way: the peer gives back all that it was told of until it answers.
void RdmaEndpoint::ask_for_places() noexcept {
  while (!closing_ && !ended_ && !recalling_ && !lent_.full()) {
    const Loan loan = handler_.lend(*this);
    if (loan.place == nullptr) return;
    const Region* const device = pair_->device_region_of(loan.place, loan.capacity);
    const Region* const region = device != nullptr ? device : pair_->region_of(loan.place, loan.capacity);
    const bool of_use =
        region != nullptr && region->lends && (region->device || loan.capacity >= kLeastPlaced);
    if (!of_use) continue;  // its payload comes in segments
    const bool in_order = lent_.push({.frame = {.view_version = loan.view_version, .sequence = loan.sequence},
                                      .address = reinterpret_cast<uintptr_t>(loan.place),
                                      .key = region->remote_key,
                                      .capacity = loan.capacity,
                                      .only_here = region->device});
    SLUICE_ASSERT(in_order);
  }
}

void RdmaEndpoint::recall() noexcept {
  lent_.drop_untold();
  if (recalling_ || !lent_.any_told()) return;
  recalling_ = recall_due_ = true;
}

// Writes the places that the peer is to be told of to the beginning of `room`.
SegmentNote RdmaEndpoint::take_notes(std::span<std::byte> room, size_t& used) noexcept {
  constexpr size_t kHead = wire::kHeaderBytes + kMaxExtensions;
  SegmentNote note{.recall = std::exchange(recall_due_, false),
                   .recalled = std::exchange(recalled_due_, false)};
  while (!recalling_ && note.loans < kMostLoansTold && room.size() - used >= kHead + kLoanBytes) {
    const LentPlace* const loan = lent_.next_untold();
    if (loan == nullptr) break;
    encode(*loan, room.subspan(used).first<kLoanBytes>());
    used += kLoanBytes;
    ++note.loans;
    lent_.told();
  }
  return note;
}

// The next frame's payload is where no processor may touch it, so it can't go in a segment; and no place has
// been lent for it yet, or none that takes it.
bool RdmaEndpoint::waits_for_place() noexcept {
  const Outbox::Frame* const frame = outbox_.at_start();
  if (frame == nullptr || frame->payload_bytes == 0) return false;
  if (pair_->device_region_of(frame->payload, frame->payload_bytes) == nullptr) return false;
  const LentPlace* const place = frame->data ? borrowed_.find(frame->name) : nullptr;
  return place == nullptr || frame->payload_bytes > place->capacity;
}

// One segment: a frame's head whose payload is written beside it, or bytes of as many frames as fit. False:
// there was nothing to send, or no way to.
bool RdmaEndpoint::send_next() noexcept {
  const std::span<std::byte> room = pair_->room();
  if (room.empty()) return false;
  bool waits = waits_for_place();
  if ((waits || !outbox_.unsent()) && !has_notes()) return false;
  size_t used = 0;
  const SegmentNote note = take_notes(room, used);
  size_t of_stream = 0;
  while (const Outbox::Frame* const frame = outbox_.at_start()) {
    if ((waits = waits_for_place())) break;
    const bool data = frame->data;
    const FrameName name = frame->name;
    const LentPlace* const place = data ? borrowed_.find(name) : nullptr;
    const Region* region = nullptr;
    if (place != nullptr && frame->payload_bytes <= place->capacity) {
      region = pair_->device_region_of(frame->payload, frame->payload_bytes);
      const bool pays = frame->payload_bytes >= kLeastPlaced || place->only_here;
      if (region == nullptr && pays) region = pair_->region_of(frame->payload, frame->payload_bytes);
    }
    if (region == nullptr) {
      const size_t taken = outbox_.take(room.subspan(used));
      if (taken == 0) break;
      if (data) (void)borrowed_.settle(name);
      used += taken;
      of_stream += taken;
      continue;
    }
    if (of_stream > 0) break;  // behind these: it has a segment of its own
    const LentPlace there = *borrowed_.settle(name);
    std::ranges::copy(frame->head(), room.begin() + static_cast<ptrdiff_t>(used));
    used += frame->head_bytes;
    counters_.wire_bytes_out += frame->head_bytes + frame->payload_bytes;
    const Status sent = pair_->send_placed(frame->body(), region->local_key, there, used, note);
    // Of two requests the first may have been posted: its payload is the device's until the pair is gone.
    outbox_.sent_until(pair_->sends_posted() + (sent.ok() ? 0 : 1));
    return sent.ok();
  }
  if (of_stream == 0 && !waits) {
    // In the middle of a frame; or notes alone.
    of_stream = outbox_.take(room.subspan(used));
    used += of_stream;
  }
  counters_.wire_bytes_out += of_stream;
  return pair_->send(used, note).ok();  // receive() ends one that is broken, with what has arrived
}

unsigned RdmaEndpoint::flush(Nanos now) noexcept {
  ask_for_places();
  unsigned done = give_back_sent();
  while (!closing_ && send_next()) {
    last_sent_ = now;
    done += 1 + give_back_sent();
  }
  counters_.bytes_copied_out = outbox_.bytes_copied();
  const bool waits = !closing_ && waits_for_place();
  if (!waits || done > 0) waits_since_ = 0;
  if (waits && waits_since_ == 0) waits_since_ = std::max<Nanos>(now, 1);
  if (closing_ || outbox_.unsent()) return done;
  if (peer_ended_) {
    if (outbox_.empty()) close(Errc::kClosed);
  } else if (ended_ && !pair_->ended()) {
    (void)pair_->end();  // kWouldBlock: at a later turn; broken: receive() ends it
  }
  return done;
}

unsigned RdmaEndpoint::give_back_sent() noexcept {
  unsigned done = 0;
  while (const Outbox::Frame* frame = outbox_.pop_sent(pair_->sends_done())) {
    ++done;
    ++counters_.frames_out;
    counters_.payload_bytes_out += frame->payload_bytes;
    handler_.on_sent(*this, frame->cookie, Errc::kOk);
  }
  return done;
}

Placement RdmaEndpoint::Intake::on_header(Endpoint& ep, const wire::FrameHeader& header,
                                          std::span<const std::byte> extensions) noexcept {
  lent.reset();
  unseen = false;
  const bool data = wire::is_data(header.type);
  if (data) lent = endpoint.lent_.settle({.view_version = header.view_version, .sequence = header.sequence});
  const Placement to = endpoint.handler_.on_header(ep, header, extensions);
  if (!data || !to.status.ok() || header.length == 0) return to;
  const bool to_device = endpoint.pair_->device_region_of(to.payload, header.length) != nullptr;
  unseen = to_device || (placed && lent && lent->only_here);
  // Anything but a frame that has landed where it belongs would take a copy.
  const bool there = placed && lent && lent->address == reinterpret_cast<uintptr_t>(to.payload);
  return unseen && !there ? Placement{.status = Errc::kUnsupported} : to;
}

Status RdmaEndpoint::take_loans(std::span<const std::byte>& bytes, const SegmentNote& note) noexcept {
  if (note.loans > kMostLoansTold) return Errc::kBadField;
  if (bytes.size() < note.loans * kLoanBytes) return Errc::kBadLength;
  for (uint32_t i = 0; i < note.loans; ++i) {
    if (!borrowed_.push(decode_loan(bytes.first<kLoanBytes>()))) return Errc::kBadField;
    bytes = bytes.subspan(kLoanBytes);
  }
  return Errc::kOk;
}

Status RdmaEndpoint::take_segment(const QueuePair::Segment& segment) noexcept {
  std::span<const std::byte> bytes = segment.bytes;
  if (segment.note.recall) {
    borrowed_.clear();
    recalled_due_ = true;
  }
  if (segment.note.recalled) {
    if (!recalling_ || recall_due_) return Errc::kUnexpectedMessage;
    recalling_ = false;
    lent_.clear();
  }
  if (const Status s = take_loans(bytes, segment.note); !s.ok()) return s;
  counters_.wire_bytes_in += bytes.size();
  intake_.placed = segment.note.placed;
  if (!segment.note.placed)
    return bytes.empty() ? Status(Errc::kOk) : reader_.feed(bytes, *this, intake_, counters_);
  intake_.lent.reset();
  if (const Status s = reader_.feed_head(bytes, *this, intake_); !s.ok()) return s;
  if (closing_) return Errc::kOk;
  const std::optional<LentPlace>& place = intake_.lent;
  if (!place || reader_.header().length > place->capacity) return Errc::kSlotNotGranted;
  counters_.wire_bytes_in += reader_.header().length;
  pair_->count_landed(reader_.header().length);
  if (intake_.unseen) return reader_.landed_unseen(*this, intake_, counters_);
  return reader_.landed(reinterpret_cast<const std::byte*>(place->address), *this, intake_, counters_);
}

unsigned RdmaEndpoint::receive(Nanos now, size_t budget_bytes) noexcept {
  // Whatever the peer sent before its connection's end is there once the end is seen.
  const Errc over = lifeline_over_;
  (void)pair_->collect();  // broken() tells, after what has arrived
  unsigned done = 0;
  const uint64_t bytes_before = counters_.wire_bytes_in;
  while (!closing_ && !peer_ended_ && pair_->has_arrived()) {
    if (pair_->at_end()) {
      end_of_stream(now);
      return done + 1;
    }
    ++done;
    last_received_ = now;
    if (const Status taken = take_segment(pair_->front()); !taken.ok()) close(taken.code());
    if (!closing_) pair_->take();
    if (counters_.wire_bytes_in - bytes_before >= budget_bytes) return done;
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
  if (outbox_.empty()) close(Errc::kClosed);
}

void RdmaEndpoint::check_deadline(Nanos now) noexcept {
  if (!timed() || (!peer_ended_ && pair_->has_arrived())) return;
  if (waits_since_ != 0 && now - waits_since_ > options_.frame_deadline) return close(Errc::kUnsupported);
  if (!peer_ended_ && !reader_.within_frame()) return;
  if (now - (peer_ended_ ? last_sent_ : last_received_) > options_.frame_deadline) close(Errc::kTimeout);
}

void RdmaEndpoint::finish() noexcept {
  let_go_of_memory();
  finished_ = true;
  lingers_ = reason_ != Errc::kReset;
  while (!outbox_.empty()) handler_.on_sent(*this, outbox_.pop()->cookie, reason_);
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
  // What collect() has just seen is announced by nothing.
  if (outbox_.can_give_back(pair_->sends_done())) return false;
  const bool says_end = !outbox_.unsent() && ended_ && !peer_ended_ && !pair_->ended();
  // The word of a place that is waited for ends the sleep, as whatever arrives.
  const bool has_bytes = outbox_.unsent() && !waits_for_place();
  const bool sends = (has_bytes || has_notes()) && pair_->can_send();
  return !says_end && !sends;
}

}  // namespace sluice::transport::rdma
