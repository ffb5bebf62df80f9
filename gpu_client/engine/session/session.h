// Class Session is a worker's session with reducers, as the C API and the NCCL plugin use it. It joins the
// session, creates the data path, the progress thread, the heartbeat monitor's entry and recovery, and
// connects them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
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
#include "gpu_client/engine/base/session_end_latch.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/control/heartbeat_monitor.h"
#include "gpu_client/engine/data_path/chunk_scheduler.h"
#include "gpu_client/engine/data_path/finding_queue.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/progress_loop.h"
#include "gpu_client/engine/data_path/progress_thread.h"
#include "gpu_client/engine/join/join.h"
#include "gpu_client/engine/recovery/recovery.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/engine/session/memory_registry.h"
#include "gpu_client/engine/trace/trace_observer.h"
#include "transport/rdma/memory.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::engine {

// Whether ranks that share a host use its memory (gpu_client/local/). kExact: also the partial sums between
// hosts of bf16, and of f32 that travels in another type, are f32. They have more bytes, but are not rounded.
enum class HostSharing : uint8_t { kOff, kAuto, kExact };

struct SessionOptions {
  JoinOptions join;
  bool own_thread = true;  // false: test(), wait() and progress() make progress
  bool payload_crc = true;
  bool keep_results = true;
  bool device_memory = false;  // register_device_memory() is allowed
  HostSharing host_sharing = HostSharing::kAuto;
  Nanos op_timeout = 0;  // 0: none
  Nanos linger = 5 * kSecond;
  SharedInflightLimit* inflight_limit = nullptr;  // of the sessions on the same links; outlives the session
  // Called once, when the session has ended: on any thread, which must not wait. May be empty.
  std::function<void()> on_ended;
  // Besides those for SLUICE_TRACE and SLUICE_BITS, and called before them. Each costs time for every chunk.
  OperationObservers observers;
};

class Session final : public CollectiveSession,
                      ChunkScheduler::Listener,
                      HeartbeatListener,
                      Recovery::Listener {
 public:
  // Joins a session. Blocks as join_session() does.
  [[nodiscard]] static Result<std::unique_ptr<Session>> create(SessionOptions options,
                                                               const JoinLimit& limit = {});
  // Without close() or abort() the connections break. The other ranks see that as the loss of this rank; in a
  // fault-tolerant session only at the absence deadline.
  ~Session() override;
  Session(const Session&) = delete;

  [[nodiscard]] Status start(OpRequest request, uint64_t& handle) override;
  [[nodiscard]] Status test(uint64_t handle, bool& done) override;
  [[nodiscard]] Status wait(uint64_t handle, Nanos deadline) override;
  void progress() noexcept override { progress_thread_->progress_once(); }
  [[nodiscard]] Rank rank() const noexcept override { return options_.join.identity.rank; }
  [[nodiscard]] uint32_t ranks() const noexcept override { return options_.join.identity.ranks; }
  [[nodiscard]] Sums sums() const noexcept override { return Sums::kReducers; }
  [[nodiscard]] bool names_callers() const noexcept override {
    return (reducer_features_ & wire::kFeatureCaller) != 0;
  }
  [[nodiscard]] bool accepts_blocks() const noexcept override {
    return (reducer_features_ & wire::kFeatureBlocks) != 0;
  }
  [[nodiscard]] Nanos linger() const noexcept override { return options_.linger; }

  [[nodiscard]] Errc code() const noexcept override { return end_latch_.code(); }
  [[nodiscard]] std::string reason() const override;
  [[nodiscard]] Rank ended_by() const noexcept override;
  [[nodiscard]] SessionStats stats() override;
  [[nodiscard]] FindingQueue& findings() noexcept override { return findings_; }
  [[nodiscard]] SessionLog log() const override { return options_.join.identity.log(); }
  [[nodiscard]] CollectiveObserver* trace() const noexcept override { return trace_.get(); }

  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool) override;
  [[nodiscard]] Result<void> may_set_reducers() const override;
  [[nodiscard]] std::vector<config::Endpoint> usable_reducers() const override {
    return recovery_ ? recovery_->usable_reducers() : options_.join.reducers;
  }

  [[nodiscard]] Result<void> register_memory(std::span<std::byte> bytes) override {
    return memory_.add(bytes);
  }
  [[nodiscard]] Result<void> register_device_memory(std::span<std::byte> bytes,
                                                    const transport::rdma::DmaBuf& dmabuf) override;
  [[nodiscard]] bool is_device_memory(const std::byte* at, uint64_t size) const override {
    return memory_.is_device_memory(at, size);
  }
  [[nodiscard]] Status deregister_memory(std::span<std::byte> bytes) override {
    return memory_.remove(bytes);
  }

  [[nodiscard]] Status close(Nanos deadline) override;
  [[nodiscard]] Status close() { return close(kNoDeadline); }  // within the linger time
  void leave() noexcept override;

  void abort(Errc code, const std::string& reason) noexcept override {
    end_for_all(code, inward(reason), code, rank());
  }
  void abort_for_caller(const std::string& reason) noexcept override {
    end_for_all(Errc::kClosed, inward(reason), Errc::kAborted, rank());
  }
  void abort_because_of(Rank at_fault, Errc code, const std::string& reason) noexcept override {
    end_for_all(code, inward(reason, true), code, MemberNames::inward(at_fault));
  }

 private:
  explicit Session(SessionOptions options);

  // session.cc
  // Between the texts of the caller and those of this session (MemberNames).
  [[nodiscard]] std::string outward(const std::string& text) const;
  [[nodiscard]] std::string inward(const std::string& text, bool is_whole = false) const noexcept;
  void end_for_all(Errc code, const std::string& reason, Errc code_for_others, Rank at_fault) noexcept;
  void say_leaving() noexcept;
  [[nodiscard]] Result<void> make_parts();  // that need descriptors
  [[nodiscard]] Result<void> begin(Membership& membership);
  // After a begin() that failed: tells the other ranks, which have joined.
  void abandon(Membership& membership, const Error& error) noexcept;
  [[nodiscard]] bool sends_sparse(uint64_t reducer_features) const noexcept;
  void record_join_failure(const Error& error) noexcept;
  void add_observers(const Membership& membership);
  [[nodiscard]] Result<void> adopt_lanes(std::vector<ReducerReservation>& reservations);
  // OpTable::release_if_ended() under the lock.
  [[nodiscard]] bool release_if_ended(uint64_t handle, Status& status);
  [[nodiscard]] Result<void> check_device_memory_support();

  // session_events.cc
  void on_scheduler_ended(const SchedulerFailure& end) noexcept override;
  void on_session_lost(Errc code, std::string text, Rank rank) noexcept override {
    end_session(code, std::move(text), rank);
  }
  void on_waiting(const WaitingStatus& waiting) noexcept override;
  void on_left() noexcept override;
  void on_path_warning(const std::string& text) noexcept override;
  void write_log_lines() noexcept;  // the body of log_thread_
  [[nodiscard]] uint64_t first_unfinished() const noexcept override { return scheduler_->first_unfinished(); }
  void on_progress_due() noexcept override;
  void on_lane_lost(uint32_t lane, Errc reason) noexcept override;
  void on_lane_resumed(uint32_t lane) noexcept override;
  void on_finding(uint32_t op, const OperationFinding& finding) noexcept override {
    findings_.push({.request = table_->handle_of(op), .finding = finding});
  }
  void on_control_lost(size_t peer, Errc code, std::string text) noexcept override;
  void on_view_query(size_t peer, const wire::ViewQuery& query) noexcept override;
  void on_rate_changes(size_t peer, const wire::RateChanges& changes) noexcept override;
  void on_view_commit(size_t peer, const wire::ViewCommit& commit) noexcept override;
  void on_drain_notice(size_t peer, const wire::DrainNotice& notice) noexcept override;
  void on_recovery_failed(const Error& error) noexcept override;
  // The monitor must not be called here. The reducers see the end by the connections that the scheduler
  // closes.
  void on_no_recovery_thread(const Error& error) noexcept override { end_session(error.code, error.text); }
  template <typename F>
  void post_to_recovery(F&& event) noexcept;
  [[nodiscard]] std::string describe(const SchedulerFailure& end) const;
  void end_session(Errc code, std::string text, Rank at_fault = wire::kNoRank) noexcept;
  // After end_latch_.set(): records the reason that the latch holds, and tells the owner.
  void record_end() noexcept;

  const SessionOptions options_;
  const blackbox::EventSource blackbox_;
  blackbox::DumpThread dump_;
  SessionEndLatch end_latch_;
  std::shared_ptr<HeartbeatMonitor> monitor_;
  uint32_t monitor_id_ = 0;              // the session's id in monitor_; 0: not added
  std::vector<std::string> lane_names_;  // of the first view, by index: "reducer 10.0.0.2:7470 lane 1"
  struct LaneId {
    uint64_t reducer = 0;
    uint32_t lane = 0;  // of the reducer
  };
  std::vector<LaneId> lane_ids_;  // as lane_names_

  std::mutex submission_;  // taken by callers, never by the progress loop
  bool closing_ = false;   // guarded by submission_
  FindingQueue findings_;
  MemoryRegistry memory_{options_.join.identity.lanes.memory, submission_};
  uint32_t colocated_reducers_ = 0;  // of the first view
  uint32_t slot_bytes_ = 0;
  Nanos round_trip_ = 0;
  uint64_t reducer_features_ = 0;  // the feature bits that all reducers of the first view have
  std::atomic<uint64_t> empty_operations_{0};
  std::atomic<bool> begun_{false};  // all members below exist
  std::atomic<bool> leaving_{false}, left_{false};
  std::atomic<uint32_t> missing_ranks_{0}, missing_rank_{wire::kNoRank}, waited_ms_{0};
  uint32_t late_rank_ = wire::kNoRank;  // the last one recorded; used by on_waiting() only
  std::mutex logging_;                  // never held while a line is written
  std::deque<std::string> log_lines_;   // of on_path_warning(), not yet written; guarded by logging_
  bool is_logging_ = false;             // log_thread_ still looks for lines; guarded by logging_
  std::thread log_thread_;              // writes log_lines_ and ends

  // Null without one. Outlives every connection to it.
  std::unique_ptr<colocated::LocalReducer> local_reducer_;
  // In the order of their creation. context_ and its endpoints are destroyed before the objects that they
  // call.
  std::unique_ptr<OpTable> table_;
  std::unique_ptr<ProgressLoop> progress_loop_;
  std::unique_ptr<ChunkScheduler> scheduler_;
  std::shared_ptr<TraceObserver> trace_;         // null without SLUICE_TRACE
  std::unique_ptr<OperationRecorder> recorder_;  // null without observers
  transport::rdma::ScopedRegistration ring_registration_;
  std::unique_ptr<transport::tcp::TcpContext> context_;
  std::unique_ptr<ProgressThread> progress_thread_;
  std::unique_ptr<Recovery> recovery_;  // null without fault tolerance
};

}  // namespace sluice::engine
