// Class ProgressLoop runs one turn of a session: it issues submitted operations, puts chunks, polls the
// transport and checks deadlines. A caller may run turns with any clock. ProgressThread decides which thread
// runs the turns and how it sleeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/spsc_ring.h"
#include "core/units.h"
#include "gpu_client/engine/base/session_end_latch.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"

namespace sluice::engine {

class ProgressLoop final : public ChunkScheduler::Listener {
 public:
  // How long the loop waits after it has lost a lane connection before it ends the session. The reducer may
  // be sending the cause on the control connection, and that cause is the better one to report.
  static constexpr Nanos kLaneGrace = 250 * kMillisecond;

  // The first turn after `end_latch` is set ends the scheduler. `listener` receives the scheduler's events.
  // Lost lane connections of a session that is not fault-tolerant are handled by the loop.
  ProgressLoop(const SessionEndLatch& end_latch, Listener& listener)
      : end_latch_(end_latch), listener_(listener), submitted_(OpTable::kCapacity) {}
  // To be called before the first turn. Both outlive the last turn.
  void attach(ChunkScheduler& scheduler, transport::Context& context) noexcept {
    scheduler_ = &scheduler;
    context_ = &context;
  }

  // Submits an operation that was opened in the table. One thread at a time (the submission lock). Never
  // full: the ring has as many entries as the table.
  void submit(uint32_t op) noexcept;

  // Announces that this rank leaves. From now on a reducer that closes its lane connections in order while no
  // operation is open has finished with this rank; the reducers need not finish at the same time. Any thread.
  void leave() noexcept { leaving_.store(true, std::memory_order_release); }

  // Runs `work` on the thread of the loop in its next turn. Used after a loss, not for frames. The caller
  // must wake the loop. After the last turn `work` is never run. Any thread.
  void post(std::function<void()> work);

  // Runs one turn and returns the amount of work done; 0 means that the thread may sleep.
  unsigned turn(Nanos now) noexcept;
  // The time at which the next turn is due without any event; 0: never. Thread of the loop.
  [[nodiscard]] Nanos next_deadline() const noexcept;
  // The number of turns that ended operations. When it changes, waiting threads must be woken. Thread of the
  // loop.
  [[nodiscard]] uint64_t end_count() const noexcept { return end_count_; }

  // True when the scheduler and every operation have ended and the transport holds no buffer. Any thread.
  [[nodiscard]] bool is_drained() const noexcept { return drained_.load(std::memory_order_acquire); }

  void on_scheduler_ended(const SchedulerFailure& end) noexcept override {
    listener_.on_scheduler_ended(end);
  }
  void on_lane_lost(uint32_t lane, Errc reason) noexcept override;
  void on_lane_resumed(uint32_t lane) noexcept override { listener_.on_lane_resumed(lane); }
  void on_finding(uint32_t op, const OperationFinding& finding) noexcept override {
    listener_.on_finding(op, finding);
  }

 private:
  unsigned issue_submitted() noexcept;
  unsigned run_posted() noexcept;
  // What operations end with once the scheduler has ended.
  [[nodiscard]] Errc end_code() const noexcept;
  void check_deadlines(Nanos now) noexcept;
  // True when the session does not need the lane connection that was closed for `reason` any more.
  [[nodiscard]] bool is_expected_close(Errc reason) const noexcept;

  const SessionEndLatch& end_latch_;
  Listener& listener_;
  ChunkScheduler* scheduler_ = nullptr;
  transport::Context* context_ = nullptr;
  SpscRing<uint32_t> submitted_;
  std::atomic<bool> any_posted_{false};
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  Nanos now_ = 0;
  Nanos next_path_sample_ = 0;
  Nanos lost_at_ = 0;  // 0: no lane connection was lost
  uint32_t lost_lane_ = kNoLane;
  Errc lost_reason_ = Errc::kOk;
  uint64_t operations_seen_ = 0;
  uint64_t end_count_ = 0;
  std::atomic<bool> leaving_{false};
  std::atomic<bool> drained_{false};
};

}  // namespace sluice::engine
