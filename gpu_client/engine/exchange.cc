#include "gpu_client/engine/exchange.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <utility>

#include "core/assert.h"
#include "gpu_client/engine/peer_code.h"
#include "wire/messages.h"

namespace sluice::engine {

Result<std::unique_ptr<Exchange>> Exchange::create(Options options, OpTable& table, Listener& listener) {
  SLUICE_ASSERT(!options.links.empty() && !options.placement.empty() && options.slot_bytes > 0);
  size_t bytes = 0;
  for (const LinkOptions& l : options.links)
    bytes += size_t{l.slots} * options.slot_bytes + Link::kControlBytes;
  auto ring = Arena::map(bytes);
  if (!ring) return add_context("result ring", {Errc::kSystem, ring.error().text});
  return std::unique_ptr<Exchange>(new Exchange(std::move(options), table, listener, std::move(*ring)));
}

Exchange::Exchange(Options options, OpTable& table, Listener& listener, Arena ring)
    : options_(std::move(options)),
      table_(table),
      listener_(listener),
      ring_(std::move(ring)),
      pace_(std::ranges::max(options_.links, {}, &LinkOptions::slots).slots),
      stragglers_(options_.ranks) {
  const auto count = static_cast<uint32_t>(options_.links.size());
  std::vector<std::vector<uint32_t>> turns(count);
  for (uint32_t t = 0; t < options_.placement.size(); ++t) {
    SLUICE_ASSERT(options_.placement[t] < count);
    turns[options_.placement[t]].push_back(t);
  }
  std::byte* at = ring_.data();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t slots = options_.links[i].slots;
    SLUICE_ASSERT(slots > 0 && slots <= 0xffff);
    links_.emplace_back(*this, Link::Plan{.index = i,
                                          .handle = options_.links[i].handle,
                                          .slots = slots,
                                          .ring = at,
                                          .turns = std::move(turns[i]),
                                          .period = static_cast<uint32_t>(options_.placement.size()),
                                          .keep_results = options_.keep_results});
    at += size_t{slots} * options_.slot_bytes + Link::kControlBytes;
  }
  last_issue_.resize(count);
  next_link_ = options_.rank % count;
  open_links_ = count;
}

transport::EndpointOptions Exchange::endpoint_options(uint32_t i) const noexcept {
  transport::EndpointOptions o;
  o.send_queue = options_.links[i].slots + 1;  // and COMMIT
  o.max_payload = std::max<uint32_t>(options_.slot_bytes, Link::kControlBytes);
  return o;
}

Status Exchange::begin() noexcept {
  for (Link& l : links_) {
    if (const Status s = l.begin(); !s.ok()) return s;
  }
  return Errc::kOk;
}

void Exchange::issue(uint32_t op) noexcept {
  Operation& o = table_[op];
  o.previous = last_open_;
  o.next = kNoOperation;
  (last_open_ == kNoOperation ? first_open_ : table_[last_open_].next) = op;
  last_open_ = op;
  // Which links take part; at most as many steps as there are chunks.
  ++issues_;
  const uint64_t period = options_.placement.size();
  const uint64_t steps = std::min<uint64_t>(o.chunk_count, period);
  for (uint64_t i = 0; i < steps; ++i) {
    const uint32_t l = options_.placement[(o.first_chunk + i) % period];
    if (std::exchange(last_issue_[l], issues_) != issues_) links_[l].add_operation(op);
  }
}

size_t Exchange::put_chunks(size_t budget) noexcept {
  if (ended()) return 0;
  size_t total = 0;
  const auto count = static_cast<uint32_t>(links_.size());
  for (uint32_t idle = 0; idle < count && total < budget;) {
    const size_t put = links_[next_link_].put_next();
    total += put;
    idle = put == 0 ? idle + 1 : 0;
    if (++next_link_ == count) next_link_ = 0;
  }
  return total;
}

void Exchange::chunk_done(uint32_t op) noexcept {
  Operation& o = table_[op];
  if (++o.chunks_done < o.chunk_count) return;
  (o.previous == kNoOperation ? first_open_ : table_[o.previous].next) = o.next;
  (o.next == kNoOperation ? last_open_ : table_[o.next].previous) = o.previous;
  ++operations_done_;
  if (first_open_ == kNoOperation) pace_.idle(now_);
  table_.end(op, Errc::kOk);
}

void Exchange::end(Errc code) noexcept {
  if (ended()) return;
  ending_.code = code;
  close_links();
}

void Exchange::close_links() noexcept {
  // A reason from a peer's mouth is not a breach of this connection: to the transport it is an end in order.
  for (Link& l : links_) l.close(Errc::kClosed);
}

void Exchange::give_up() noexcept {
  SLUICE_DASSERT(drained());
  while (first_open_ != kNoOperation) {
    const uint32_t op = first_open_;
    first_open_ = table_[op].next;
    table_.end(op, ending_.code);
  }
  last_open_ = kNoOperation;
}

Errc Exchange::breach(uint32_t link, Errc code, const char* format, ...) noexcept {
  if (ended()) return code;
  ending_.code = code;
  ending_.link = link;
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(ending_.text.data(), ending_.text.size(), format, args);
  va_end(args);
  listener_.on_exchange_ended(ending_);
  close_links();
  return code;
}

void Exchange::result_came(uint32_t link, bool losses, uint64_t bytes) noexcept {
  if (losses && link != 0) losses_seen();
  pace_.result(link == 0, losses, bytes, now_);
}

void Exchange::losses_seen() noexcept {
  links_[0].tell_losses();
}

void Exchange::told_abort(uint32_t link, std::span<const std::byte> body) noexcept {
  wire::Abort abort;
  try {
    if (const Status s = wire::decode_body(body, abort); !s.ok()) {
      static_cast<void>(breach(link, s.code(), "an ABORT that can't be read"));
      return;
    }
  } catch (const std::exception&) {  // no memory for its text
    abort.code = Errc::kAborted;
  }
  if (ended()) return;
  ending_.from_peer = true;
  ending_.rank = abort.rank;
  static_cast<void>(breach(link, from_peer(abort.code), "%s", abort.text.c_str()));
}

void Exchange::link_closed(uint32_t link, Errc reason) noexcept {
  SLUICE_DASSERT(open_links_ > 0);
  --open_links_;
  if (!ended()) listener_.on_link_lost(link, reason);
}

uint64_t Exchange::result_bytes_copied() const noexcept {
  uint64_t sum = 0;
  for (const Link& l : links_) sum += l.bytes_copied();
  return sum;
}

transport::EndpointCounters Exchange::counters() const noexcept {
  transport::EndpointCounters sum;
  for (const Link& l : links_) {
    const transport::EndpointCounters c = l.counters();
    sum.frames_in += c.frames_in;
    sum.frames_out += c.frames_out;
    sum.payload_bytes_in += c.payload_bytes_in;
    sum.payload_bytes_out += c.payload_bytes_out;
    sum.wire_bytes_in += c.wire_bytes_in;
    sum.wire_bytes_out += c.wire_bytes_out;
    sum.receive_calls += c.receive_calls;
    sum.send_calls += c.send_calls;
    sum.bytes_copied += c.bytes_copied;
  }
  return sum;
}

}  // namespace sluice::engine
