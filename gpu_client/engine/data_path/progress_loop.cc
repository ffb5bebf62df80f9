#include "gpu_client/engine/data_path/progress_loop.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"

namespace sluice::engine {
namespace {

// Payload bytes put between two polls. The first bytes should leave before the checksums of a whole window
// are computed, and a chunk should be sent while the checksum has left it in cache.
constexpr size_t kPutBudget = 512 * kKiB;
constexpr size_t kReceiveBudget = kMiB;
// Rounds of put and poll in one turn. After them the caller does its other work.
constexpr unsigned kRounds = 8;

}  // namespace

void ProgressLoop::submit(uint32_t op) noexcept {
  const bool pushed = submitted_.try_push(op);
  SLUICE_ASSERT(pushed);
}

unsigned ProgressLoop::issue_submitted() noexcept {
  unsigned issued = 0;
  for (uint32_t op = 0; submitted_.try_pop(op); ++issued) {
    if (scheduler_->has_ended()) {
      scheduler_->table().end(op, end_code());
      ++end_count_;
    } else {
      scheduler_->issue(op);
    }
  }
  return issued;
}

Errc ProgressLoop::end_code() const noexcept {
  const Errc code = end_latch_.code();
  return code != Errc::kOk ? code : Errc::kAborted;
}

void ProgressLoop::post(std::function<void()> work) {
  const std::lock_guard lock(posted_mutex_);
  posted_.push_back(std::move(work));
  any_posted_.store(true, std::memory_order_release);
}

unsigned ProgressLoop::run_posted() noexcept {
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

unsigned ProgressLoop::turn(Nanos now) noexcept {
  now_ = now;
  scheduler_->set_now(now);
  unsigned done = issue_submitted() + run_posted();
  if (const Errc code = end_latch_.code(); code != Errc::kOk && !scheduler_->has_ended())
    scheduler_->end(code);
  for (unsigned round = 0; round < kRounds; ++round) {
    const size_t put = scheduler_->put_chunks(kPutBudget);
    const unsigned polled = context_->poll(now, kReceiveBudget);
    done += polled + (put > 0 ? 1 : 0);
    if (put == 0) break;
  }
  check_deadlines(now);
  if (now >= next_path_sample_) {
    next_path_sample_ = now + transport::PathMonitor::kInterval;
    scheduler_->sample_paths(now);
  }
  if (std::exchange(operations_seen_, scheduler_->operations_done()) != scheduler_->operations_done())
    ++end_count_;
  if (scheduler_->is_drained() && !drained_.load(std::memory_order_relaxed)) {
    scheduler_->fail_open_operations(end_code());
    ++end_count_;
    ++done;
    drained_.store(true, std::memory_order_release);
  }
  return done;
}

bool ProgressLoop::is_expected_close(Errc reason) const noexcept {
  return reason == Errc::kClosed && leaving_.load(std::memory_order_acquire) &&
         scheduler_->oldest_operation() == kNoOperation;
}

void ProgressLoop::check_deadlines(Nanos now) noexcept {
  if (scheduler_->has_ended()) return;
  if (lost_at_ != 0 && is_expected_close(lost_reason_)) lost_at_ = 0;
  if (lost_at_ != 0 && now - lost_at_ >= kLaneGrace) {
    static_cast<void>(
        scheduler_->report_failure(lost_lane_, Errc::kReducerLost, "lane connection %s",
                                   lost_reason_ == Errc::kClosed ? "closed by the reducer" : "reset"));
    return;
  }
  const uint32_t oldest = scheduler_->oldest_operation();
  if (oldest == kNoOperation) return;
  const Operation& o = scheduler_->table()[oldest];
  if (o.request.deadline == 0 || now < o.request.deadline) return;
  static_cast<void>(scheduler_->report_failure(
      kNoLane, Errc::kOpTimeout, "operation %u (%s of %llu %s) timed out: %llu of %llu chunks finished",
      o.op_id, wire::to_string(o.request.op).data(), static_cast<unsigned long long>(o.request.count),
      wire::to_string(o.request.dtype).data(), static_cast<unsigned long long>(o.chunks_done),
      static_cast<unsigned long long>(o.chunk_count)));
}

Nanos ProgressLoop::next_deadline() const noexcept {
  if (scheduler_->has_ended()) return 0;
  Nanos next = lost_at_ != 0 ? lost_at_ + kLaneGrace : 0;
  if (const uint32_t oldest = scheduler_->oldest_operation(); oldest != kNoOperation) {
    const Nanos deadline = scheduler_->table()[oldest].request.deadline;
    if (deadline != 0) next = next == 0 ? deadline : std::min(next, deadline);
  }
  return next;
}

void ProgressLoop::on_lane_lost(uint32_t lane, Errc reason) noexcept {
  if (scheduler_->options().fault_tolerant) return listener_.on_lane_lost(lane, reason);
  if (!is_expected_close(reason)) listener_.on_lane_lost(lane, reason);
  const bool cause_unknown = reason == Errc::kClosed || reason == Errc::kReset;
  if (!cause_unknown) {
    // The transport knows the cause, so there is no need to wait for one on the control connection.
    const Errc code = reason == Errc::kTimeout ? Errc::kReducerLost : reason;
    static_cast<void>(scheduler_->report_failure(
        lane, code, "%s: %s",
        reason == Errc::kTimeout ? "frame incomplete or unacknowledged at its deadline" : "malformed frame",
        to_string(reason).data()));
    return;
  }
  if (lost_at_ != 0 || is_expected_close(reason)) return;
  lost_at_ = std::max<Nanos>(now_, 1);
  lost_lane_ = lane;
  lost_reason_ = reason;
}

}  // namespace sluice::engine
