// One core's worth of reducer: polls its connections, folds, replies. Owns its transport context; shares
// nothing with other lanes. do_work() is one turn and can be called by hand: protocol tests run a lane with a
// clock of their own and no network.
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
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::reducer {

struct LaneOptions {
  size_t receive_budget = 256 * kKiB;  // payload taken from one connection in one turn
  size_t fold_budget = 256 * kKiB;  // output of folds between two polls, so that receiving never waits long
  Nanos frame_timeout = 10 * kSecond;
  size_t ring_capacity = 4096;  // commands and events
  FairPool* fair = nullptr;     // of the reducer's lanes; null: no session is held back for another
};

class Lane {
 public:
  // Makes an endpoint of a connected socket; set-up path.
  using Adopt = std::function<Result<transport::Endpoint*>(transport::tcp::Socket, transport::Handler&,
                                                           const transport::EndpointOptions&)>;

  Lane(std::unique_ptr<transport::Context> context, Adopt adopt, const LaneOptions& options);

  // ---- lane thread ----
  // Commands, network, folds, and every kTick what is published. Returns how much was done; 0 = idle.
  unsigned do_work(Nanos now) noexcept;
  // What do_work() does for kAttach once there is an endpoint; tests attach inproc endpoints with it.
  void attach(LaneSession& session, Rank rank, transport::Endpoint& ep);
  // Options an endpoint of this session needs.
  [[nodiscard]] transport::EndpointOptions endpoint_options(const SessionPlan& plan) const noexcept;
  [[nodiscard]] transport::Context& context() noexcept { return *context_; }
  [[nodiscard]] size_t session_count() const noexcept { return sessions_.size(); }
  // How long it may sleep when idle: sums that are held back for other sessions are looked at again.
  [[nodiscard]] Nanos idle_limit() const noexcept { return holds_ ? FairShares::kTurn : kTick; }

  // ---- conductor thread ----
  // False: the ring is full (counted); the conductor keeps the command and tries again.
  [[nodiscard]] bool command(LaneCommand command) noexcept;
  [[nodiscard]] bool poll_event(LaneEvent& event) noexcept { return events_.try_pop(event); }
  // Called on the lane thread after events were pushed: makes the conductor look. Set before the lane runs.
  void set_event_bell(std::function<void()> bell) { bell_ = std::move(bell); }

  // ---- any thread ----
  [[nodiscard]] const LaneCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] uint64_t ring_full_count() const noexcept {
    return commands_.full_count() + events_.full_count();
  }

 private:
  unsigned obey() noexcept;
  void carry_out(const LaneCommand& command) noexcept;
  void adopt(LaneSession& session, Rank rank, transport::tcp::Socket socket) noexcept;
  unsigned take_over() noexcept;
  unsigned fold() noexcept;
  void find_ready() noexcept;
  void report() noexcept;
  void enter(LaneSession& session);

  static constexpr Nanos kTick = 100 * kMillisecond;
  static constexpr size_t kFoldPiece = 64 * kKiB;

  const LaneOptions options_;
  std::unique_ptr<transport::Context> context_;
  Adopt adopt_;
  std::function<void()> bell_;
  std::vector<LaneSession*> sessions_;
  std::vector<LaneSession*> ready_;  // to fold in this turn; as much room as sessions_ has
  double fold_time_ = 0;             // virtual time of the session that was folded last
  bool holds_ = false;               // a session has sums to make that its meter holds back
  Nanos next_tick_ = 0;
  Nanos now_ = 0;
  bool busy_ = false;  // the last turn was
  SpscRing<LaneCommand> commands_;
  SpscRing<LaneEvent> events_;
  LaneCounters counters_;
};

}  // namespace sluice::reducer
