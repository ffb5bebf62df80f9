// Class Lane serves the lane connections of many sessions on one core: it polls, folds and replies.
//
// A lane owns its transport context and shares nothing with other lanes. do_work() is one turn of its loop.
// Tests call it directly with a clock of their own and no network.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/result.h"
#include "core/spsc_ring.h"
#include "reducer/fair/fair_pool.h"
#include "reducer/lane/lane_counters.h"
#include "reducer/lane/lane_messages.h"
#include "reducer/lane/lane_session.h"
#include "reducer/lane/lane_work.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::reducer {

struct LaneOptions {
  size_t receive_budget = 256 * kKiB;  // payload received from one connection in one turn
  size_t fold_budget = 256 * kKiB;     // fold output between two polls; bounds the delay of receiving
  Nanos frame_timeout = 10 * kSecond;
  size_t ring_capacity = 4096;  // of the command ring and of the event ring
  FairPool* fair = nullptr;     // shared by the reducer's lanes; null: no session is held back for others
};

class Lane {
 public:
  // Makes an endpoint of a connected socket. May allocate: not part of the hot path.
  using Adopt = std::function<Result<transport::Endpoint*>(transport::tcp::Socket, transport::Handler&,
                                                           const transport::EndpointOptions&)>;

  Lane(std::unique_ptr<transport::Context> context, Adopt adopt, const LaneOptions& options);

  // ---- lane thread ----
  // One turn: commands, network, folds, and some of the published state. Returns 0 when it was idle.
  unsigned do_work(Nanos now) noexcept;
  // The part of kAttach that follows the creation of the endpoint. Tests attach inproc endpoints with it.
  void attach(LaneSession& session, Rank rank, transport::Endpoint& ep);
  // Options that an endpoint of this session needs.
  [[nodiscard]] transport::EndpointOptions endpoint_options(const SessionPlan& plan) const noexcept;
  [[nodiscard]] transport::Context& context() noexcept { return *context_; }
  [[nodiscard]] size_t session_count() const noexcept { return sessions_.size(); }
  [[nodiscard]] const LaneWork& work() const noexcept { return work_; }
  // How long an idle lane may sleep. Sessions that are held back need a new look at every share update. After
  // work one more update is due, or the sleep would count as time in which these bytes moved.
  [[nodiscard]] Nanos idle_limit() const noexcept {
    if (next_ticked_ < sessions_.size()) return 0;
    const bool update_due = options_.fair != nullptr && work_.now - busy_at_ < FairShares::kUpdateInterval;
    return has_held_session_ || update_due ? FairShares::kUpdateInterval : kTick;
  }

  // ---- control thread ----
  // False: the ring is full, which is counted. The control loop keeps the command and retries.
  [[nodiscard]] bool command(LaneCommand command) noexcept;
  [[nodiscard]] bool poll_event(LaneEvent& event) noexcept { return events_.try_pop(event); }
  // `notify` is called on the lane thread after events were pushed. Set before the lane runs.
  void set_event_notifier(std::function<void()> notify) { notify_ = std::move(notify); }

  // ---- any thread ----
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] uint64_t ring_full_count() const noexcept {
    return commands_.full_count() + events_.full_count();
  }

 private:
  unsigned process_commands() noexcept;
  void execute(const LaneCommand& command) noexcept;
  void adopt(LaneSession& session, Rank rank, transport::tcp::Socket socket) noexcept;
  unsigned attach_pending() noexcept;
  unsigned fold() noexcept;
  void collect_ready() noexcept;
  void tick_sessions() noexcept;
  void report_events() noexcept;
  void add_session(LaneSession& session);
  void remove_session(size_t place) noexcept;

  // A pass over all sessions begins every kTick, and ticks those that are due. A turn of it is bounded, since
  // other sessions wait for it.
  static constexpr Nanos kTick = 100 * kMillisecond;
  static constexpr size_t kTickedPerTurn = 64, kSeenPerTurn = 8192;
  static constexpr size_t kFoldSlice = 64 * kKiB;

  const LaneOptions options_;
  std::unique_ptr<transport::Context> context_;
  Adopt adopt_;
  std::function<void()> notify_;
  std::vector<LaneSession*> sessions_;
  std::vector<LaneSession*> ready_;  // sessions to fold in this turn; has the capacity of sessions_
  double virtual_time_ = 0;          // virtual time of the session that was folded last
  bool has_held_session_ = false;    // a session has folds to do and its meter holds it back
  LaneWork work_;
  Nanos next_tick_ = 0;
  size_t next_ticked_ = 0;  // of sessions_, in this pass
  Nanos busy_at_ = 0;       // the last turn with work
  bool was_busy_ = false;   // in the last turn
  SpscRing<LaneCommand> commands_;
  SpscRing<LaneEvent> events_;
  LaneCounters counters_;
};

}  // namespace sluice::reducer
