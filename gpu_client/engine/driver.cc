#include "gpu_client/engine/driver.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"

namespace sluice::engine {
namespace {

// Payload put between two polls: the first bytes should leave before the checksums of a whole window are
// computed, and a chunk should be sent while it is still in cache from that.
constexpr size_t kPutBudget = 512 * kKiB;
constexpr size_t kReceiveBudget = kMiB;
// Rounds of put and poll in one turn; then the owner looks at its other work.
constexpr unsigned kRounds = 8;

}  // namespace

void Driver::attach(Exchange& exchange, transport::Context& context) noexcept {
  exchange_ = &exchange;
  context_ = &context;
}

void Driver::submit(uint32_t op) noexcept {
  const bool pushed = submitted_.try_push(op);
  SLUICE_ASSERT(pushed);
}

unsigned Driver::take_submissions() noexcept {
  unsigned taken = 0;
  for (uint32_t op = 0; submitted_.try_pop(op); ++taken) {
    if (exchange_->ended()) {
      exchange_->table().end(op, fate_.code() != Errc::kOk ? fate_.code() : Errc::kAborted);
      ++endings_;
    } else {
      exchange_->issue(op);
    }
  }
  return taken;
}

void Driver::post(std::function<void()> work) {
  const std::lock_guard lock(posted_mutex_);
  posted_.push_back(std::move(work));
  any_posted_.store(true, std::memory_order_release);
}

unsigned Driver::do_posted() noexcept {
  if (!any_posted_.load(std::memory_order_acquire)) return 0;
  std::vector<std::function<void()>> works;
  {
    const std::lock_guard lock(posted_mutex_);
    works.swap(posted_);
    any_posted_.store(false, std::memory_order_relaxed);
  }
  for (const auto& work : works) work();
  return static_cast<unsigned>(works.size());
}

unsigned Driver::turn(Nanos now) noexcept {
  now_ = now;
  unsigned done = take_submissions() + do_posted();
  if (const Errc code = fate_.code(); code != Errc::kOk && !exchange_->ended()) exchange_->end(code);
  exchange_->set_now(now);
  for (unsigned round = 0; round < kRounds; ++round) {
    const size_t put = exchange_->put_chunks(kPutBudget);
    const unsigned polled = context_->poll(now, kReceiveBudget);
    done += polled + (put > 0 ? 1 : 0);
    if (put == 0) break;
  }
  check_deadlines(now);
  if (std::exchange(operations_seen_, exchange_->operations_done()) != exchange_->operations_done())
    ++endings_;
  if (exchange_->drained() && !drained_.load(std::memory_order_relaxed)) {
    exchange_->give_up();
    ++endings_;
    ++done;
    drained_.store(true, std::memory_order_release);
  }
  return done;
}

// Whether a link that was lost for `reason` is one that nobody needs any more.
bool Driver::harmless(Errc reason) const noexcept {
  return reason == Errc::kClosed && leaving_.load(std::memory_order_acquire) &&
         exchange_->oldest() == kNoOperation;
}

void Driver::check_deadlines(Nanos now) noexcept {
  if (exchange_->ended()) return;
  if (lost_at_ != 0 && harmless(lost_reason_)) lost_at_ = 0;
  if (lost_at_ != 0 && now - lost_at_ >= kLinkGrace) {
    static_cast<void>(exchange_->breach(lost_link_, Errc::kReducerLost, "lane connection %s",
                                        lost_reason_ == Errc::kClosed ? "closed by the reducer" : "broke"));
    return;
  }
  const uint32_t oldest = exchange_->oldest();
  if (oldest == kNoOperation) return;
  const Operation& o = exchange_->table()[oldest];
  if (o.request.deadline == 0 || now < o.request.deadline) return;
  static_cast<void>(exchange_->breach(
      kNoLink, Errc::kOpTimeout,
      "operation %u (%s of %llu %s) did not end in time: %llu of %llu chunks are back", o.op_id,
      wire::to_string(o.request.op).data(), static_cast<unsigned long long>(o.request.count),
      wire::to_string(o.request.dtype).data(), static_cast<unsigned long long>(o.chunks_done),
      static_cast<unsigned long long>(o.chunk_count)));
}

Nanos Driver::next_deadline() const noexcept {
  if (exchange_->ended()) return 0;
  Nanos next = lost_at_ != 0 ? lost_at_ + kLinkGrace : 0;
  if (const uint32_t oldest = exchange_->oldest(); oldest != kNoOperation) {
    const Nanos deadline = exchange_->table()[oldest].request.deadline;
    if (deadline != 0) next = next == 0 ? deadline : std::min(next, deadline);
  }
  return next;
}

void Driver::on_link_lost(uint32_t link, Errc reason) noexcept {
  if (exchange_->options().survives) return listener_.on_link_lost(link, reason);
  const bool silent = reason == Errc::kClosed || reason == Errc::kReset;
  if (!silent) {
    // What the transport found wrong with this connection is the reason, whatever the reducer may say of it.
    const Errc code = reason == Errc::kTimeout ? Errc::kReducerLost : reason;
    static_cast<void>(exchange_->breach(link, code, "%s: %s",
                                        reason == Errc::kTimeout
                                            ? "a frame stopped half way, or nothing is answered"
                                            : "damaged or malformed frame",
                                        to_string(reason).data()));
    return;
  }
  if (lost_at_ != 0 || harmless(reason)) return;
  lost_at_ = std::max<Nanos>(now_, 1);
  lost_link_ = link;
  lost_reason_ = reason;
}

}  // namespace sluice::engine
