// Class LocalSession is a session whose ranks share hosts. Within a host, data moves through shared memory
// (stage.h); between hosts, on rails: engine sessions with one member for each host (topology.h). A session
// on one host needs no reducer and no network.
//
// One thread at a time makes progress: a caller in wait(), test() or progress(), or else the session's own
// thread while operations are open. That thread also watches the other ranks' processes (peer_watch.h), so it
// exists in sessions without progress threads too, where it only watches.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "blackbox/dump_thread.h"
#include "blackbox/event_source.h"
#include "core/result.h"
#include "gpu_client/engine/base/peer_error.h"
#include "gpu_client/engine/base/session_end_latch.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/stall_meter.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/engine/trace/trace_observer.h"
#include "gpu_client/local/early_end.h"
#include "gpu_client/local/peer_watch.h"
#include "gpu_client/local/recorder.h"
#include "gpu_client/local/segment.h"
#include "gpu_client/local/stage.h"
#include "gpu_client/local/topology.h"

namespace sluice::local {

class HostAgreement;

class LocalSession final : public engine::CollectiveSession {
 public:
  // Blocks until all ranks have come, as meet() and engine::Session::create() do. The options about
  // reducers, connections and results have no effect with one host. Returns null where a host refuses to
  // share memory: then all ranks get null, and can join a session of the network.
  [[nodiscard]] static Result<std::unique_ptr<LocalSession>> create(const engine::SessionOptions& options,
                                                                    HostAgreement& agreement);
  // The same for ranks that have neither reducers nor a meeting point, so they must be on this host.
  [[nodiscard]] static Result<std::unique_ptr<LocalSession>> create_on_one_host(
      engine::SessionOptions options);
  // Without close() or abort() the other ranks see the loss of this rank.
  ~LocalSession() override;
  LocalSession(const LocalSession&) = delete;

  [[nodiscard]] Status start(engine::OpRequest request, uint64_t& handle) override;
  [[nodiscard]] Status test(uint64_t handle, bool& done) override;
  [[nodiscard]] Status wait(uint64_t handle, Nanos deadline) override;
  void progress() noexcept override;
  [[nodiscard]] Rank rank() const noexcept override { return options_.join.identity.rank; }
  [[nodiscard]] uint32_t ranks() const noexcept override { return options_.join.identity.ranks; }
  [[nodiscard]] bool accepts_blocks() const noexcept override;
  [[nodiscard]] Sums sums() const noexcept override;
  [[nodiscard]] Nanos linger() const noexcept override { return options_.linger; }
  [[nodiscard]] Errc code() const noexcept override { return end_latch_.code(); }
  [[nodiscard]] std::string reason() const override { return end_latch_.text(); }
  [[nodiscard]] Rank ended_by() const noexcept override { return end_latch_.rank(); }
  [[nodiscard]] engine::SessionStats stats() override;
  [[nodiscard]] engine::FindingQueue& findings() noexcept override { return findings_; }
  [[nodiscard]] engine::SessionLog log() const override { return {options_.join.identity.session, rank()}; }
  [[nodiscard]] engine::CollectiveObserver* trace() const noexcept override { return trace_.get(); }
  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool) override;
  [[nodiscard]] Result<void> may_set_reducers() const override;
  [[nodiscard]] std::vector<config::Endpoint> usable_reducers() const override;
  [[nodiscard]] Result<void> register_memory(std::span<std::byte> /*bytes*/) override { return {}; }
  [[nodiscard]] Result<void> register_device_memory(std::span<std::byte> bytes,
                                                    const transport::rdma::DmaBuf& dmabuf) override;
  [[nodiscard]] bool is_device_memory(const std::byte* /*at*/, uint64_t /*size*/) const override {
    return false;
  }
  [[nodiscard]] Status deregister_memory(std::span<std::byte> /*bytes*/) override { return Errc::kOk; }
  [[nodiscard]] Status close(Nanos deadline) override;
  void abort(Errc code, const std::string& reason) noexcept override { abort(code, reason, code); }
  void abort_for_caller(const std::string& reason) noexcept override {
    abort(Errc::kClosed, reason, Errc::kAborted);
  }

 private:
  LocalSession(engine::SessionOptions options, Topology topology);

  // local_session_create.cc
  [[nodiscard]] Result<void> meet_host(Nanos timeout, int end_fd = -1);
  [[nodiscard]] Result<void> begin(Segment segment);
  [[nodiscard]] tl::unexpected<Error> record_failure(const Error& error);
  void begin_records();

  // local_session_rails.cc
  [[nodiscard]] Result<void> join_rails(HostAgreement& agreement);
  void begin_rail_limit();
  [[nodiscard]] Result<void> join_rail(uint32_t rail, HostAgreement& agreement, const EarlyEnd& early_end);
  [[nodiscard]] engine::SessionOptions rail_options(uint32_t rail);
  void abort_rails(Rank at_fault, Errc code, const std::string& reason) noexcept;
  void check_rails() noexcept;
  // What this rank's rails wait for. Its ranks are hosts.
  [[nodiscard]] engine::WaitingStatus waiting_on_rails() const;
  void follow_pool();

  [[nodiscard]] Status submit(const engine::OpRequest& request, uint64_t& handle);
  void run_thread() noexcept;
  void stop_thread() noexcept;

  [[nodiscard]] bool release_if_ended(uint64_t handle, Status& status);
  template <typename Predicate>
  bool wait_until(Predicate done, Nanos deadline) noexcept;
  template <typename Predicate>
  void wait_for_signal(Predicate done, Nanos deadline) noexcept;
  [[nodiscard]] bool try_drive() noexcept { return !driving_.exchange(true, std::memory_order_seq_cst); }
  void stop_driving() noexcept;
  template <typename Predicate, typename Sleeper>
  void drive(Predicate done, Nanos deadline, Sleeper sleeper) noexcept;
  [[nodiscard]] bool step() noexcept;
  template <typename Sleeper>
  [[nodiscard]] Nanos idle(Nanos now, unsigned idle_steps, Nanos deadline, Sleeper sleeper) noexcept;
  void signal() noexcept;

  // local_session_end.cc
  void abort(Errc code, const std::string& reason, Errc code_for_others) noexcept;
  void check_failures() noexcept;
  void check_peers();
  void check_deadline(Nanos now) noexcept;
  [[nodiscard]] Nanos operation_deadline(Nanos now) const noexcept;
  // `at_fault`: a rank, or wire::kNoRank.
  void end_here(Rank at_fault, Errc code, const std::string& text, Errc code_for_rails,
                const std::string& text_for_rails) noexcept;
  void end_here(Rank at_fault, Errc code, const std::string& text, Errc code_for_rails) noexcept {
    end_here(at_fault, code, text, code_for_rails, text);
  }
  void end_for_all(Rank at_fault, Errc code, const std::string& reason, Errc code_for_others) noexcept;
  // The same for a failure of this rank: the others learn whose it is.
  void end_by_own_failure(Errc code, const std::string& reason, Errc code_for_others) noexcept;
  void end_by_own_failure(Errc code, const std::string& reason) noexcept {
    end_by_own_failure(code, reason, engine::code_for_peer(code));
  }
  // Leaves the reason to the other ranks of this host, unless there is one.
  void tell_others(Rank at_fault, Errc code, const std::string& reason) noexcept;
  // Why the session has ended, as told on this host: names the rank that failed, also if it is this one.
  [[nodiscard]] std::string reason_for_others() const;
  [[nodiscard]] std::string describe(const Stage::Mismatch& mismatch) const;
  [[nodiscard]] std::string describe_oldest() const;
  // "; the parts on rank 3 are 10, 20" if the oldest operation has parts that differ, which no announcement
  // has.
  [[nodiscard]] std::string describe_parts() const;
  [[nodiscard]] std::string describe_missing() const;
  // The first rank that the oldest operation waits for, if this host knows it.
  [[nodiscard]] Rank first_missing() const;
  // The rank that serves the rail on a host.
  [[nodiscard]] Rank rail_member(uint32_t rail, uint32_t host) const {
    return topology_.ranks_of[host][topology_.server_of(rail, host)];
  }
  // A rank of this host, by its local index.
  [[nodiscard]] Rank rank_of(uint32_t local) const { return topology_.ranks_of[host_][local]; }
  [[nodiscard]] std::string name_of(uint32_t local) const { return "rank " + std::to_string(rank_of(local)); }

  const engine::SessionOptions options_;
  const Topology topology_;
  const uint32_t host_;
  const blackbox::EventSource blackbox_;
  blackbox::DumpThread dump_;
  std::atomic<bool> is_recorded_{false};  // the end is an event in the black box
  engine::SessionEndLatch end_latch_;
  engine::FindingQueue findings_;
  std::optional<Segment> segment_;  // outlives the rails, which use its memory
  std::optional<engine::OpTable> table_;
  std::shared_ptr<engine::TraceObserver> trace_;  // null without SLUICE_TRACE
  std::optional<Recorder> recorder_;              // nothing without observers
  std::optional<Stage> stage_;
  Rails rails_;  // end before the stage, which they call
  std::atomic<bool> are_rails_complete_{false};
  std::atomic<bool> are_rails_aborted_{false};
  uint32_t pool_version_ = 0;  // of the list that the rails have; belongs to the thread that makes progress
  std::optional<PeerWatch> watch_;

  std::mutex submission_;  // guards the table's open(), find() and release()
  bool closing_ = false;   // guarded by submission_
  std::atomic<uint64_t> empty_operations_{0};

  // Each flag below is paired with another variable, as in engine::ProgressThread: one side stores the flag
  // and then loads the variable, the other side the reverse, all sequentially consistent.
  std::atomic<bool> driving_{false};  // with waiters_: a thread waits while none makes progress
  std::atomic<uint32_t> waiters_{0};  // with Operation::state: an operation ends and no waiter is signalled
  std::atomic<uint32_t> callers_{0};  // in wait(); the own thread leaves progress to them
  std::atomic<bool> stopping_{false};
  std::optional<Result<void>> watch_begun_;  // of the own thread; guarded by mutex_
  unsigned yields_;                          // of the thread that makes progress
  engine::StallMeter stall_meter_;
  EarlyEnd* early_end_ = nullptr;  // of the thread that joins rails; guarded by mutex_
  std::mutex mutex_;               // for waits on changed_
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace sluice::local
