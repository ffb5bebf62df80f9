// The cold side of a reducer: accepts, shakes hands, keeps the sessions, tells lanes and ranks. One thread;
// lanes reach it by their event rings and a bell, everybody else by post().
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/result.h"
#include "reducer/control/asio.h"
#include "reducer/control/connection.h"
#include "reducer/control/job_watch.h"
#include "reducer/control/session.h"
#include "reducer/control/tenants.h"
#include "reducer/fair/fair_pool.h"
#include "reducer/lane/lane_thread.h"
#include "reducer/reducer.h"
#include "reducer/security/key_store.h"
#include "transport/rdma/pairing.h"

namespace sluice::reducer {

// Whether workers may have their lanes over RDMA here.
struct RdmaOffer {
  bool only = false;             // no lane is served over TCP
  transport::rdma::Rails rails;  // held open; none: not offered
  std::string why_none;          // empty: not wanted
  transport::rdma::RailChoice choice;
};

class Conductor {
 public:
  // Takes the listening socket; `fair` and the lanes must outlive it.
  Conductor(const ReducerOptions& options, int listen_fd, KeyStore keys,
            std::shared_ptr<const transport::tcp::TlsContext> tls, RdmaOffer rdma, FairPool& fair,
            std::vector<std::unique_ptr<LaneThread>>& lanes);
  ~Conductor();

  void start();  // its thread; lanes may run from here on
  ExitReason join();

  // ---- any thread ----
  void drain() noexcept;
  void stop() noexcept;
  // Options that were checked, and the context that their certificates are in.
  void reconfigure(ReloadableOptions options, std::shared_ptr<const transport::tcp::TlsContext> tls);
  [[nodiscard]] std::string status_from_outside();
  // Whether its loop comes to something that was given to it now, within `patience`; true where it has ended.
  [[nodiscard]] bool answers(Nanos patience);
  // The same without waiting: `tell` gets it on the conductor's thread, or never where that has ended.
  void ask_status(std::function<void(std::string)> tell);
  [[nodiscard]] uint64_t id() const noexcept { return id_; }

  // ---- conductor thread: for Connection and Session ----
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  [[nodiscard]] const ReducerOptions& options() const noexcept { return options_; }
  // How long peers may take to hear the last words.
  [[nodiscard]] Nanos linger() const noexcept;
  [[nodiscard]] bool has_key() const noexcept { return keys_.has_key(); }
  [[nodiscard]] wire::Digest token_for(const std::string& job) const { return keys_.token_for(job); }
  // Handshakes of TLS, over the reducer's life.
  struct TlsCounts {
    uint64_t agreed = 0;
    uint64_t failed = 0;
  };
  [[nodiscard]] TlsCounts& tls_counts() noexcept { return tls_counts_; }
  // Null: off.
  [[nodiscard]] const transport::tcp::TlsContext* tls() const noexcept { return tls_.get(); }
  // Of lane connections that were to have a queue pair.
  struct PairCounts {
    uint64_t paired = 0;
    uint64_t on_tcp = 0;  // went on over TCP instead
  };
  [[nodiscard]] PairCounts& pair_counts() noexcept { return pair_counts_; }
  [[nodiscard]] const RdmaOffer& rdma() const noexcept { return rdma_; }
  // One of the queue pairs that may be between PAIR and PAIRED; null: there are too many. Held meanwhile.
  [[nodiscard]] std::shared_ptr<void> take_pairing();
  // A queue pair for a connection with these ends, joined with the one at `address`: by a thread of its own,
  // since to register memory takes milliseconds. `asker` hears of it (pair_made).
  void make_pair(std::shared_ptr<Connection> asker, const transport::rdma::ConnectionEnds& ends,
                 std::vector<uint8_t> address, transport::rdma::PairMemory memory);
  // By the same thread; may be none.
  void unmake_pair(std::unique_ptr<transport::tcp::Companion> pair) noexcept;
  [[nodiscard]] wire::Welcome make_welcome(uint8_t version, const SessionId& session) const;
  // The id under which ranks of this session find the reducer here.
  [[nodiscard]] uint64_t id_for(const SessionId& session) const;
  // The session goes on, and takes nobody back under an id that it has removed: should its ranks look here
  // again, this reducer is another.
  void become_another_for(const SessionId& session);
  void join(Connection& connection, const wire::Hello& hello, const wire::Join& join);
  [[nodiscard]] Session* find_session(const SessionId& id);
  // The verdict on the session that `hello` names, for those of its job.
  [[nodiscard]] wire::Verdict find_verdict(const wire::Hello& hello) const;
  void keep_verdict(const Session& session, const wire::Verdict& verdict);
  // Ranks that come later to a join that failed get the same words; those that have joined are told already.
  void keep_refusal(const Session& session, Error error, uint32_t rank);
  void send_command(uint32_t lane, const LaneCommand& command);
  [[nodiscard]] uint32_t lane_count() const noexcept { return static_cast<uint32_t>(lanes_.size()); }
  [[nodiscard]] FairPool& fair() noexcept { return fair_; }
  // Under which tenant a session of this client counts.
  [[nodiscard]] std::string tenant_of(const wire::Hello& hello) const;
  [[nodiscard]] uint32_t weight_of(const std::string& tenant) const { return tenants_.weight_of(tenant); }
  void count_close(Errc reason) noexcept { counters_.count_close(reason); }
  void count_refusal(Errc reason) noexcept;
  [[nodiscard]] bool draining() const noexcept { return draining_; }
  [[nodiscard]] Nanos drain_left() const noexcept { return std::max<Nanos>(drain_deadline_ - now_, 0); }
  // Of sessions that survive losses, over the reducer's life.
  struct SurvivalCounts {
    uint64_t control_resumes = 0;
    uint64_t views_proposed = 0;
    uint64_t views_committed = 0;
  };
  [[nodiscard]] SurvivalCounts& survival() noexcept { return survival_; }
  [[nodiscard]] std::string status_json();
  [[nodiscard]] nlohmann::json fair_status() const;
  static uint64_t random64();

 private:
  struct KeptVerdict {
    wire::Verdict verdict;
    Nanos until;
  };
  struct KeptRefusal {
    Error error;
    uint32_t rank;
    std::unordered_set<uint32_t> told;
    Nanos until;
  };

  // What is kept of a session is for its job alone: another job may come with the same id.
  using JobSession = std::pair<std::string, SessionId>;

  // Runs `work` and logs what it throws. For handlers that renew themselves: short of memory, the work of one
  // turn may be lost, but there must be a next.
  template <typename F>
  static void attempt(F&& work) noexcept {
    try {
      work();
    } catch (const std::exception& e) {
      report(e);
    }
  }
  static void report(const std::exception& e) noexcept;

  void run();
  void accept();
  void accepted(asio::ip::tcp::socket socket);
  void schedule_tick();
  void tick();
  void listen_to_lanes();
  void take_events();
  void flush_commands();
  void free_ended();
  void take_options(const ReloadableOptions& options, std::shared_ptr<const transport::tcp::TlsContext> tls);
  void begin_drain();
  void watch_job();
  void end_with_job();
  void begin_stop(Errc code, const char* text);
  void finish_if_empty();
  [[nodiscard]] std::optional<Error> check_join(const wire::Hello& hello, const wire::Join& join) const;

  static constexpr Nanos kTick = 50 * kMillisecond;
  static constexpr Nanos kLookAtDevices = 1 * kSecond;
  static constexpr Nanos kSlept = 500 * kMillisecond;  // a tick this late: the process was stopped
  static constexpr Nanos kKept = 60 * kSecond;
  static constexpr size_t kLaterIds = 4096;  // then the oldest is forgotten: that session goes on without
  // Of a reducer that ends now: together with the drain timeout it must stay under what an orchestrator
  // waits.
  static constexpr Nanos kLastLinger = 1 * kSecond;

  ReducerOptions options_;
  const KeyStore keys_;
  std::shared_ptr<const transport::tcp::TlsContext> tls_;
  const RdmaOffer rdma_;
  uint32_t pairing_ = 0;  // outlives the connections that hold a place
  const uint64_t id_;
  FairPool& fair_;
  Tenants tenants_;
  std::vector<std::unique_ptr<LaneThread>>& lanes_;
  Nanos now_ = 0;
  Nanos next_tick_ = 0;
  Nanos looked_at_devices_ = 0;
  const Nanos started_;

  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer timer_;
  asio::steady_timer accept_pause_;
  int bell_fd_ = -1;
  asio::posix::stream_descriptor bell_;
  uint64_t bell_count_ = 0;
  std::optional<asio::thread_pool> pairing_thread_;  // ends before what it posts to
  std::mutex ended_mutex_;  // held by the one who joins the thread or does its work after it
  std::thread thread_;

  std::unordered_set<std::shared_ptr<Connection>> connections_;
  std::map<SessionId, std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Session>> ending_;  // their ids are free again
  struct LaterId {
    uint64_t id;
    Nanos since;
  };
  std::map<SessionId, LaterId> later_ids_;  // of sessions that have gone on without this reducer
  std::map<JobSession, KeptVerdict> verdicts_;
  std::map<JobSession, KeptRefusal> refusals_;
  std::vector<std::deque<LaneCommand>> waiting_commands_;  // a lane's ring was full
  uint64_t reserved_bytes_ = 0;
  uint32_t next_handle_ = 1;
  bool draining_ = false;
  bool hurried_ = false;  // what is left ends now: by a second signal, or the drain timeout
  bool stopping_ = false;
  Nanos drain_deadline_ = 0;
  ExitReason exit_reason_ = ExitReason::kDrained;
  JobWatch job_;

  LaneCounters counters_;  // `closed` of connections that never reached a lane
  std::array<Counter, kErrcSlots> refused_;
  uint64_t accepted_ = 0;
  uint64_t sessions_begun_ = 0;
  uint64_t sessions_completed_ = 0;
  uint64_t sessions_failed_ = 0;
  uint64_t sessions_moved_ = 0;
  SurvivalCounts survival_;
  TlsCounts tls_counts_;
  PairCounts pair_counts_;
};

}  // namespace sluice::reducer
