// Class Recovery keeps a fault-tolerant session running when connections break, reducers are lost or drain,
// and reducers are added (protocol.md section 11). It decides and coordinates:
//
// - Session forwards the losses and view messages that HeartbeatMonitor (control connections) and
//   ProgressLoop (lane connections) report.
// - Reconnector reopens connections, one thread per reducer.
// - ViewFollower says which view changes are valid.
// - PoolWatch finds new reducers, on rank 0; one thread per added reducer joins it on every rank.
// - LinkMeter measures this rank's link, whose rate decides this rank's share of the chunks.
// - Recovery stops ChunkScheduler and restarts it in the new view.
//
// Recovery has its own thread, started by LinkMeter or by the first event; a session without both has none.
// All state belongs to that thread; the other threads post events. Everything that takes time runs elsewhere,
// so that the thread can handle a second loss during the first one.
#pragma once

#include <sys/eventfd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "blackbox/event_source.h"
#include "core/units.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/control/heartbeat_monitor.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "gpu_client/engine/data_path/progress_loop.h"
#include "gpu_client/engine/data_path/progress_thread.h"
#include "gpu_client/engine/join/join.h"
#include "gpu_client/engine/membership/link_meter.h"
#include "gpu_client/engine/membership/pool_watch.h"
#include "gpu_client/engine/membership/view_follower.h"
#include "gpu_client/engine/recovery/reconnector.h"
#include "gpu_client/engine/recovery/recovery_counters.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::engine {

class Recovery final : Reconnector::Listener, PoolWatch::Listener {
 public:
  // The reducer is lost after this many connections in a row were closed for a malformed frame. If a
  // connection received kGoodFrames frames before it broke, the count starts at 1 again.
  static constexpr unsigned kMaxBadFrames = 16;
  static constexpr uint64_t kGoodFrames = 1024;

  class Listener {
   public:
    // At most once, on the thread of Recovery: no reducer is left, or a reducer violated the rules of view
    // changes.
    virtual void on_recovery_failed(const Error& error) noexcept = 0;
    // Like on_recovery_failed(), when the system cannot start the thread of Recovery. The call comes on the
    // thread that posted the first event, perhaps HeartbeatMonitor's: do not call HeartbeatMonitor.
    virtual void on_no_recovery_thread(const Error& error) noexcept = 0;

   protected:
    ~Listener() = default;
  };

  // The parts of the session that Recovery uses. All must live until stop() returns.
  struct SessionParts {
    HeartbeatMonitor& monitor;
    ProgressLoop& progress_loop;
    ChunkScheduler& scheduler;
    transport::tcp::TcpContext& context;
    ProgressThread& progress_thread;
  };

  // To be called before the control connections of the membership are moved to the monitor. Events are stored
  // until begin().
  Recovery(const JoinOptions& options, const Membership& membership, SessionParts parts, Listener& listener);
  ~Recovery() { stop(); }
  Recovery(const Recovery&) = delete;

  // `monitor_id` is the session's id in HeartbeatMonitor.
  void begin(uint32_t monitor_id);

  // These post an event. `lane` is an index in ChunkScheduler, `reducer_index` the peer's in
  // HeartbeatMonitor. Any thread.
  void lane_lost(uint32_t lane, Errc reason, uint64_t frames_received, std::string text);
  void lane_resumed(uint32_t lane);
  void control_lost(size_t reducer_index, Errc code, std::string text);
  void view_query(size_t reducer_index, wire::ViewQuery query);
  void rate_changes(size_t reducer_index, wire::RateChanges changes);
  void view_commit(size_t reducer_index, const wire::ViewCommit& commit);
  void drain_notice(size_t reducer_index);

  // Replaces the list of reducers, or with nullopt rereads its file. Only rank 0's list counts; the other
  // ranks learn of changes by view changes. Any thread.
  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool);

  // From now on no reducer is added that lacks one of these feature bits. Any thread.
  void require_features(uint64_t bits) noexcept {
    required_features_.fetch_or(bits, std::memory_order_relaxed);
  }

  // The dedicated reducers that a new session of the same ranks should use: without those that are lost,
  // drain, or have broken connections while others have none. Any thread.
  [[nodiscard]] std::vector<config::Endpoint> usable_reducers() const;

  // Stops all threads of recovery. Afterwards nothing of the session is used, except by work that was
  // posted to the progress loop before. Not from the listener.
  void stop() noexcept;

  [[nodiscard]] RecoveryStats stats() const noexcept { return counters_.get(); }

 private:
  // A reducer of the membership history that this rank has joined, stored at its index in HeartbeatMonitor.
  struct ReducerState {
    // `lane` is an index in ChunkScheduler.
    [[nodiscard]] bool has(uint32_t lane) const noexcept {
      return lane >= first_lane && lane - first_lane < lanes;
    }

    size_t index = 0;  // in HeartbeatMonitor
    uint64_t id = 0;
    std::string name;
    config::Endpoint address;
    uint32_t handle = 0;
    uint32_t slots = 0;       // W
    bool sparse = false;      // payloads may be sparse
    uint32_t first_lane = 0;  // index of its first lane connection in ChunkScheduler
    uint32_t lanes = 0;
    bool same_process = false;
    std::vector<transport::tcp::Socket> new_lanes;  // of an added reducer, until the view has it
    std::unique_ptr<Reconnector> reconnector;       // created when it is first needed
    unsigned bad_frames = 0;                        // connections in a row closed for a malformed frame
    uint64_t broken_lanes = 0;                      // a bit per lane connection
    bool broken_control = false;
    bool draining = false;
    bool lost = false;  // suspected or removed
  };
  // A reducer that a thread is joining because of a VIEW_QUERY.
  struct PendingJoin {
    // Cancels what the thread waits for, except name resolution.
    void interrupt() const noexcept { static_cast<void>(::eventfd_write(interrupt_event.fd(), 1)); }

    uint64_t reducer_id = 0;
    std::string name;
    Nanos deadline = 0;
    bool abandoned = false;                  // the result is dropped
    transport::tcp::Socket interrupt_event;  // eventfd
    std::thread thread;
  };

  // recovery.cc: the thread, and its decisions
  void post(std::function<void()> event);
  void start_thread_if_due();
  void run();
  void on_query(size_t reducer_index, const wire::ViewQuery& query);
  void on_commit(size_t reducer_index, const wire::ViewCommit& commit);
  void send_known_changes();
  void send_known_changes(const ReducerState& r);
  void send_drain_requests();
  void suspect(ReducerState& r, Errc code, const std::string& cause);
  void answer_query();
  void fail_session(const Error& error);
  void fail_session(const ReducerState& source, const Error& violation);
  void end_stall(const char* outcome);
  [[nodiscard]] bool is_recovered() const;
  // A connection broke, so the end of the stall is a warning. A draining reducer closes its own.
  void begin_loss(const ReducerState& r) {
    stall_by_loss_ |= !r.draining;
    counters_.begin_stall();
  }

  void on_control_reconnected(uint64_t reducer_id, ControlConnection connection) noexcept override;
  void on_lane_reconnected(uint64_t reducer_id, uint32_t lane,
                           transport::tcp::Socket socket) noexcept override;
  void on_reconnect_failed(uint64_t reducer_id, Errc code, std::string text) noexcept override;
  void on_reducer_found(const config::Endpoint& address, ReducerReservation reservation) override;
  void on_unlisted(std::vector<uint64_t> reducers) override;

  // recovery_steps.cc: the execution of decisions
  [[nodiscard]] bool run_on_loop(std::function<void()> work);
  void close_reducer(ReducerState& r);
  [[nodiscard]] bool is_unreachable(const ReducerState& r) const;
  void reconnect(ReducerState& r, bool control, uint64_t lanes);
  void replace_control(ReducerState& r, ControlConnection connection);
  void bind_lane(uint32_t lane, transport::tcp::Socket& socket);
  void resume_lane(const ReducerState& r, uint32_t lane, transport::tcp::Socket socket);
  void try_restart();
  struct Placement {
    std::vector<uint32_t> table;    // wire::placement_table, with indices of lane connections
    std::vector<uint32_t> standby;  // the lane connections of all live reducers
  };
  [[nodiscard]] Placement placement();
  ReducerState& append_reducer(const ReducerReservation& reservation);
  [[nodiscard]] ReducerState* find_reducer(uint64_t reducer_id) noexcept;  // null: never joined by this rank
  void check_watch(Result<void> result);
  [[nodiscard]] std::vector<config::Endpoint> find_usable_reducers();

  // recovery_joins.cc: added reducers, and those that the list no longer has
  void propose_reducer(const config::Endpoint& address, ReducerReservation reservation);
  void join_reducer(const ViewFollower::Addition& addition);
  void start_join(const ViewFollower::Addition& addition);
  void finish_join(uint64_t reducer_id, Result<ReducerReservation> reservation);
  [[nodiscard]] bool add_reducer(ReducerReservation& reservation);
  void reject_reducer(uint64_t reducer_id, const std::string& reason);
  void cancel_join(uint64_t reducer_id);
  void shorten_join_deadlines();
  void expire_joins();
  void remove_unlisted(const std::vector<uint64_t>& reducers);
  [[nodiscard]] Nanos reducer_join_timeout() const noexcept;

  // recovery_rates.cc: changed rates of links
  void prepare_meter(const Membership& membership);
  void sample_link();
  [[nodiscard]] LinkMeter::Sample take_link_sample();
  [[nodiscard]] double share_in_view() const;
  void update_rate();

  const JoinOptions options_;
  const SessionLog log_;
  const blackbox::EventSource blackbox_;
  const uint64_t incarnation_;
  const wire::View first_view_;
  const uint64_t view_hash_;  // of first_view_
  const SessionParts parts_;
  uint32_t monitor_id_ = 0;
  Listener& listener_;
  ViewFollower follower_;
  std::deque<ReducerState> reducers_;
  // On rank 0: reservations at reducers that it has proposed, until a VIEW_QUERY adds them.
  std::map<uint64_t, ReducerReservation> reservations_;
  std::vector<PendingJoin> pending_joins_;
  size_t query_sender_ = 0;                     // index of the reducer that sent the last VIEW_QUERY
  std::atomic<uint64_t> required_features_{0};  // a reducer without these bits is not added
  std::optional<LinkMeter> meter_;              // of this rank's link; null: its rate stays as it is
  uint64_t own_reducer_ = 0;                    // the reducer in this process, if meter_ exists
  Nanos next_sample_ = 0;
  // Of this rank in the view of the last restart, if meter_ exists.
  uint64_t own_rate_ = 0;
  double own_share_ = 0;
  bool restart_pending_ = false;
  bool failed_ = false;
  std::string stall_reason_;
  bool stall_by_loss_ = false;  // else the stall is that of a planned change, such as a drain
  RecoveryCounters counters_;

  mutable std::mutex mutex_;  // guards the members up to thread_
  std::condition_variable changed_;
  std::deque<std::function<void()>> events_;
  std::vector<config::Endpoint> usable_reducers_;  // after the last event
  bool begun_ = false, stopping_ = false;
  std::thread thread_;
  std::unique_ptr<PoolWatch> watch_;  // only on rank 0
};

}  // namespace sluice::engine
