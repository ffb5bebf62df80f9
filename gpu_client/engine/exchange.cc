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
  SLUICE_ASSERT(options.keep_results || !options.survives);
  uint32_t depth = 0;
  for (const LinkOptions& l : options.links) depth += l.slots;
  auto ring = ChunkRing::create(depth, options.slot_bytes);
  if (!ring) return tl::unexpected(ring.error());
  return std::unique_ptr<Exchange>(new Exchange(std::move(options), table, listener, std::move(*ring)));
}

Exchange::Exchange(Options options, OpTable& table, Listener& listener, ChunkRing ring)
    : options_(std::move(options)),
      table_(table),
      listener_(listener),
      view_{.hash = options_.view_hash},
      ring_(std::move(ring)),
      placement_(options_.placement),
      pace_(std::ranges::max(options_.links, {}, &LinkOptions::slots).slots),
      stragglers_(options_.ranks) {
  const auto count = static_cast<uint32_t>(options_.links.size());
  for (uint32_t i = 0; i < count; ++i) add_link(options_.links[i]);
  std::vector<Link::Share> all = shares(placement_);
  for (uint32_t i = 0; i < count; ++i) links_[i].restart(std::move(all[i]), 0);
  clock_link_ = std::ranges::min(placement_);
  next_link_ = options_.rank % count;
}

uint32_t Exchange::add_link(const LinkOptions& options) {
  SLUICE_ASSERT(options.slots > 0 && options.slots <= 0xffff);
  const auto index = static_cast<uint32_t>(links_.size());
  links_.emplace_back(*this, Link::Plan{.index = index,
                                        .handle = options.handle,
                                        .slots = options.slots,
                                        .keep_results = options_.keep_results});
  last_issue_.push_back(0);
  return index;
}

std::vector<Link::Share> Exchange::shares(const std::vector<uint32_t>& placement) const {
  std::vector<Link::Share> all(links_.size());
  for (Link::Share& share : all) share.period = static_cast<uint32_t>(placement.size());
  for (uint32_t t = 0; t < placement.size(); ++t) {
    SLUICE_ASSERT(placement[t] < all.size());
    all[placement[t]].turns.push_back(t);
  }
  return all;
}

transport::EndpointOptions Exchange::endpoint_options(uint32_t i) const noexcept {
  transport::EndpointOptions o;
  o.send_queue = links_[i].slots() + 1;  // and COMMIT, RESUME or VIEW_COMMIT
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
  queue_operation(op, o.first_chunk);
}

// Which links take part with chunks at or behind `from`; at most as many steps as there are such chunks.
void Exchange::queue_operation(uint32_t op, uint64_t from) noexcept {
  const Operation& o = table_[op];
  const uint64_t end = o.first_chunk + o.chunk_count;
  if (from >= end) return;
  ++issues_;
  const uint64_t period = placement_.size();
  const uint64_t steps = std::min<uint64_t>(end - from, period);
  for (uint64_t i = 0; i < steps; ++i) {
    const uint32_t l = placement_[(from + i) % period];
    if (std::exchange(last_issue_[l], issues_) != issues_) links_[l].add_operation(op);
  }
}

uint32_t Exchange::operation_of(uint64_t chunk) const noexcept {
  for (uint32_t op = first_open_; op != kNoOperation; op = table_[op].next) {
    const Operation& o = table_[op];
    if (chunk >= o.first_chunk && chunk < o.first_chunk + o.chunk_count) return op;
  }
  return kNoOperation;
}

void Exchange::stop() noexcept {
  stopped_ = true;
  for (Link& l : links_) l.recall();
}

bool Exchange::quiet() const noexcept {
  return stopped_ && std::ranges::all_of(links_, &Link::quiet);
}

void Exchange::restart(const View& view, const std::vector<uint32_t>& placement) {
  SLUICE_ASSERT(quiet() && view.base <= first_unfinished() && view.base + depth() >= first_unfinished());
  view_ = view;
  placement_ = placement;
  resend_until_ = put_until_;
  std::vector<Link::Share> all = shares(placement_);
  for (size_t i = 0; i < links_.size(); ++i) {
    const bool removed = all[i].turns.empty();
    if (removed) links_[i].close(Errc::kReset);
    links_[i].restart(std::move(all[i]), view.base);
    if (removed && !links_[i].bound()) links_[i].retire();
  }
  for (uint32_t op = first_open_; op != kNoOperation; op = table_[op].next)
    queue_operation(op, std::max(table_[op].first_chunk, resend_until_));
  clock_link_ = std::ranges::min(placement_);
  pace_.restart();
  stopped_ = false;
}

size_t Exchange::put_chunks(size_t budget) noexcept {
  if (ended() || stopped_) return 0;
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
  const bool of_a_connection = options_.survives && link != kNoLink;
  Ending& e = of_a_connection ? breach_ : ending_;
  std::va_list args;
  va_start(args, format);
  std::vsnprintf(e.text.data(), e.text.size(), format, args);
  va_end(args);
  if (of_a_connection) {
    e.code = code;
    e.link = link;
  } else {
    end_with(link, code);
  }
  return code;
}

void Exchange::end_with(uint32_t link, Errc code) noexcept {
  ending_.code = code;
  ending_.link = link;
  listener_.on_exchange_ended(ending_);
  close_links();
}

void Exchange::result_came(uint32_t link, bool losses, uint64_t bytes) noexcept {
  if (losses && link != clock_link_) losses_seen();
  pace_.result(link == clock_link_, losses, bytes, now_);
}

void Exchange::losses_seen() noexcept {
  links_[clock_link_].tell_losses();
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
  std::snprintf(ending_.text.data(), ending_.text.size(), "%s", abort.text.c_str());
  end_with(link, from_peer(abort.code));
}

void Exchange::link_resumed(uint32_t link) noexcept {
  if (!ended()) listener_.on_link_resumed(link);
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

uint32_t Exchange::rdma_links() const noexcept {
  return static_cast<uint32_t>(std::ranges::count_if(links_, &Link::over_rdma));
}

uint64_t Exchange::bytes_resent() const noexcept {
  uint64_t sum = 0;
  for (const Link& l : links_) sum += l.bytes_resent();
  return sum;
}

transport::EndpointCounters Exchange::counters() const noexcept {
  transport::EndpointCounters sum;
  for (const Link& l : links_) sum += l.counters();
  return sum;
}

}  // namespace sluice::engine
