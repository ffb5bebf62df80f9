// Class ControlLoop runs the control side of a reducer on one thread: it accepts connections and drives
// sessions.
//
// Lanes reach it through LaneMailbox, other threads through posted handlers. It never touches payload.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "blackbox/dump_thread.h"
#include "blackbox/event_source.h"
#include "config/secret_file.h"
#include "core/result.h"
#include "reducer/control/admission_policy.h"
#include "reducer/control/asio.h"
#include "reducer/control/audit_log.h"
#include "reducer/control/connection/connection.h"
#include "reducer/control/connection/queue_pair_factory.h"
#include "reducer/control/connection/unproved_connections.h"
#include "reducer/control/control_counters.h"
#include "reducer/control/descriptor_reserve.h"
#include "reducer/control/due_times.h"
#include "reducer/control/gather_registry.h"
#include "reducer/control/job_budgets.h"
#include "reducer/control/job_monitor.h"
#include "reducer/control/lane_mailbox.h"
#include "reducer/control/reducer_log.h"
#include "reducer/control/session/session_log.h"
#include "reducer/control/session/session_registry.h"
#include "reducer/fair/fair_pool.h"
#include "reducer/lane/lane_thread.h"
#include "reducer/reducer.h"
#include "transport/tcp/socket.h"

namespace sluice::reducer {

class ControlLoop {
 public:
  // `fair` and the lanes must outlive the loop. Throws if the system lacks descriptors or threads.
  ControlLoop(const ReducerOptions& options, transport::tcp::Socket listener,
              std::vector<config::Secret> keys, std::shared_ptr<const transport::tcp::TlsContext> tls,
              RdmaOffer rdma, FairPool& fair, std::vector<std::unique_ptr<LaneThread>>& lanes);
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;
  ~ControlLoop();

  void start();  // starts the thread; lanes may run from now on
  ExitReason wait();

  // ---- any thread ----
  void drain() noexcept;
  void stop() noexcept;
  // The options must be valid, and `tls` and `keys` loaded from their files. All are in use when this
  // returns.
  void reconfigure(const ReloadableOptions& options, std::shared_ptr<const transport::tcp::TlsContext> tls,
                   std::vector<config::Secret> keys);
  // Blocks until the loop has answered. Also works after the loop has ended.
  [[nodiscard]] std::string query_status();
  [[nodiscard]] bool has_session(const SessionId& session);
  // Reducer::end_meeting(), and the end of what it remembers.
  [[nodiscard]] bool end_meeting(const SessionId& session);
  void forget_meeting(const SessionId& session);
  // The same without blocking: calls `reply` on the control thread, or never if the loop has ended.
  void request_status(std::function<void(std::string)> reply);
  // True if the loop runs a posted handler within `timeout` or has ended.
  [[nodiscard]] bool is_responsive(Nanos timeout);
  [[nodiscard]] uint64_t id() const noexcept { return id_; }

  // ---- control thread: for connections, sessions and the status report ----
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  [[nodiscard]] Nanos uptime() const noexcept { return now_ - started_; }
  [[nodiscard]] const ReducerOptions& options() const noexcept { return options_; }
  // How long a connection or session that ends waits for its peers.
  [[nodiscard]] Nanos linger() const noexcept;
  [[nodiscard]] bool is_draining() const noexcept { return is_draining_; }  // any thread
  [[nodiscard]] Nanos drain_time_left() const noexcept { return std::max<Nanos>(drain_deadline_ - now_, 0); }

  [[nodiscard]] const ReducerLog& log() const noexcept { return log_; }
  [[nodiscard]] AuditLog& audit() noexcept { return audit_; }
  [[nodiscard]] SessionLog& session_log() noexcept { return session_log_; }
  [[nodiscard]] blackbox::DumpThread& dump() noexcept { return dump_; }
  // Records a refused handshake. Strangers can cause such events, so some are only counted: they must not
  // displace all others.
  void record_refusal(const SessionId& session, uint32_t rank, Errc code, const std::string& text) noexcept;
  [[nodiscard]] AdmissionPolicy& admission() noexcept { return admission_; }
  [[nodiscard]] JobBudgets& budgets() noexcept { return budgets_; }
  [[nodiscard]] const transport::tcp::TlsContext* tls() const noexcept { return tls_.get(); }  // null: off
  [[nodiscard]] const RdmaOffer& rdma() const noexcept { return rdma_; }
  [[nodiscard]] wire::Welcome make_welcome(uint8_t version, const SessionId& session) const;
  [[nodiscard]] uint32_t lanes_offered() const noexcept;  // lane connections per rank
  void join(Connection& connection, const wire::Hello& hello, const wire::Join& join);

  [[nodiscard]] SessionRegistry& sessions() noexcept { return sessions_; }
  [[nodiscard]] GatherRegistry& gathers() noexcept { return gathers_; }
  [[nodiscard]] LaneMailbox& mailbox() noexcept { return mailbox_; }
  [[nodiscard]] QueuePairFactory& queue_pairs() noexcept { return queue_pairs_; }
  [[nodiscard]] FairPool& fair() noexcept { return fair_; }
  [[nodiscard]] ControlCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const std::vector<std::unique_ptr<LaneThread>>& lanes() const noexcept { return lanes_; }
  [[nodiscard]] uint32_t lane_count() const noexcept { return static_cast<uint32_t>(lanes_.size()); }
  // In the handshake and control connections.
  [[nodiscard]] size_t connection_count() const noexcept { return connections_.size() - closed_.size(); }
  struct ConnectionLimits {
    size_t all = 0;            // of connection_count()
    size_t unproved = 0;       // of these, how many may have proved nothing
    size_t with_reducers = 0;  // with those that other reducers may have beside
  };
  [[nodiscard]] ConnectionLimits connection_limits() const;
  // Why a client of this job is refused although its connection was accepted.
  [[nodiscard]] std::optional<Error> check_connections(const std::string& job) const;
  [[nodiscard]] UnprovedConnections& unproved() noexcept { return unproved_; }
  [[nodiscard]] DueTimes<FrameConnection*>& deadlines() noexcept { return deadlines_; }
  void note_closed(FrameConnection& connection) noexcept;
  // Calls `reply` with the status as JSON, with the keys of docs/guides/operate.md, or with an empty text if
  // memory is short: within this call if there are few sessions. All who ask meanwhile get the same answer.
  void answer_status(std::function<void(std::string)> reply);
  static uint64_t random64();

 private:
  // Runs `work` and logs its exceptions. A handler that re-arms itself must do so even when memory is short.
  template <typename F>
  void run_logged(F&& work) const noexcept {
    try {
      work();
    } catch (const std::exception& e) {
      log_exception(e);
    }
  }
  void log_exception(const std::exception& e) const noexcept;

  // Runs `work` on the control thread and blocks until it has answered.
  template <typename Answer>
  [[nodiscard]] Answer query(const std::function<Answer()>& work);
  // Blocks until the control thread has answered, and does its work if it has ended.
  template <typename Answer>
  [[nodiscard]] Answer await(std::future<Answer> future);
  // Adds up some sessions for the status, and posts the rest or answers.
  void survey_sessions();
  [[nodiscard]] std::string status_json();
  void run();
  void accept();
  void retry_accept();
  // True if it has made room, so that accepting may go on at once.
  [[nodiscard]] bool on_accept_failed(const boost::system::error_code& error);
  void on_accepted(asio::ip::tcp::socket socket);
  // Ends an unproved connection for a newer one; `why` it cannot have both.
  void displace(const std::shared_ptr<Connection>& connection, const std::string& why);
  void forget_closed();
  void check_deadlines();
  void trim_heap();
  void schedule_tick();
  void tick();
  void handle_stall(Nanos time);
  void process_lane_events();
  // Ticks and frees some sessions, in a bounded time, and posts the rest.
  void serve_sessions();
  void apply_options(const ReloadableOptions& options, std::shared_ptr<const transport::tcp::TlsContext> tls,
                     std::vector<config::Secret> keys);

  // ---- shutdown ----
  void begin_drain();
  void begin_stop(Errc code, const char* text);
  void end_after_job();
  void close_if_empty();

  ReducerOptions options_;
  const ReducerLog log_;
  AdmissionPolicy admission_;
  JobBudgets budgets_{options_, admission_};
  std::shared_ptr<const transport::tcp::TlsContext> tls_;
  const RdmaOffer rdma_;
  const uint64_t id_;
  std::string address_;  // "10.0.0.3:7470", or "*:7470"
  const blackbox::EventSource blackbox_;
  blackbox::DumpThread dump_;
  Nanos refusals_since_ = 0;
  uint32_t refusals_ = 0;
  uint64_t refusals_not_recorded_ = 0;
  FairPool& fair_;
  std::vector<std::unique_ptr<LaneThread>>& lanes_;
  ControlCounters counters_;
  Nanos now_ = 0;
  AuditLog audit_{log_, now_};
  SessionLog session_log_{log_, now_};
  const Nanos started_;
  Nanos next_tick_ = 0;
  Nanos devices_polled_at_ = 0;

  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer tick_timer_;
  asio::steady_timer accept_timer_;
  // In a worker's process descriptors are the job's, and clients are few.
  DescriptorReserve descriptors_{options_.hosted ? 1 : DescriptorReserve::kMaxRefused};
  Nanos accept_failure_logged_at_ = 0;
  LaneMailbox mailbox_;
  QueuePairFactory queue_pairs_;
  std::mutex ended_mutex_;  // held while joining the thread, and while running handlers in its place
  std::thread thread_;

  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<FrameConnection>> closed_;  // of them, until the next tick; has room for all
  DueTimes<FrameConnection*> deadlines_;                  // of all of them that have one
  size_t closed_since_trim_ = 0;
  Nanos trimmed_at_ = 0;
  UnprovedConnections unproved_;
  uint64_t displaced_ = 0;  // since the last line about them
  Nanos displaced_logged_at_ = 0;
  SessionRegistry sessions_;
  bool serves_sessions_ = false;                                  // a posted handler goes on with it
  std::vector<std::function<void(std::string)>> status_replies_;  // that wait for the survey
  GatherRegistry gathers_;
  JobMonitor job_;

  std::atomic<bool> is_draining_ = false;  // accepts no new sessions; written by this loop only
  bool is_stopping_ = false;               // ends the remaining sessions: stop(), or the drain timeout
  bool is_closed_ = false;                 // no session is left: accepts no connections
  Nanos drain_deadline_ = 0;
  ExitReason exit_reason_ = ExitReason::kDrained;
};

}  // namespace sluice::reducer
