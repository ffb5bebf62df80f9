// Class LocalSession is a session whose ranks all run on one host. It needs no reducer and no network: data
// moves through shared memory (stage.h).
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

#include "core/result.h"
#include "gpu_client/engine/base/session_end_latch.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/stall_meter.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/local/peer_watch.h"
#include "gpu_client/local/segment.h"
#include "gpu_client/local/stage.h"

namespace sluice::local {

class LocalSession final : public engine::CollectiveSession {
 public:
  // Blocks until all ranks have come, as meet() does. Of the options, those about reducers, connections and
  // results have no effect.
  [[nodiscard]] static Result<std::unique_ptr<LocalSession>> create(engine::SessionOptions options);
  // Without close() or abort() the other ranks see the loss of this rank.
  ~LocalSession() override;
  LocalSession(const LocalSession&) = delete;

  [[nodiscard]] Status start(engine::OpRequest request, uint64_t& handle) override;
  [[nodiscard]] Status test(uint64_t handle, bool& done) override;
  [[nodiscard]] Status wait(uint64_t handle, Nanos deadline) override;
  void progress() noexcept override;
  [[nodiscard]] Rank rank() const noexcept override { return options_.join.identity.rank; }
  [[nodiscard]] uint32_t ranks() const noexcept override { return options_.join.identity.ranks; }
  [[nodiscard]] bool accepts_blocks() const noexcept override { return true; }
  [[nodiscard]] Nanos linger() const noexcept override { return options_.linger; }
  [[nodiscard]] Errc code() const noexcept override { return end_latch_.code(); }
  [[nodiscard]] std::string reason() const override { return end_latch_.text(); }
  [[nodiscard]] engine::SessionStats stats() override;
  [[nodiscard]] engine::FindingQueue& findings() noexcept override { return findings_; }
  [[nodiscard]] engine::SessionLog log() const override { return {options_.join.identity.session, rank()}; }
  [[nodiscard]] engine::CollectiveObserver* trace() const noexcept override { return nullptr; }
  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool) override;
  [[nodiscard]] std::vector<config::Endpoint> usable_reducers() const override { return {}; }
  [[nodiscard]] Result<void> register_memory(std::span<std::byte> /*bytes*/) override { return {}; }
  [[nodiscard]] Result<void> register_device_memory(std::span<std::byte> bytes,
                                                    const transport::rdma::DmaBuf& dmabuf) override;
  [[nodiscard]] bool is_device_memory(const std::byte* /*at*/, uint64_t /*size*/) const override {
    return false;
  }
  [[nodiscard]] Status deregister_memory(std::span<std::byte> /*bytes*/) override { return Errc::kOk; }
  [[nodiscard]] Status close(Nanos deadline) override;
  void abort(Errc code, const std::string& reason) noexcept override { end_for_all(code, reason, code); }
  void abort_for_caller(const std::string& reason) noexcept override {
    end_for_all(Errc::kClosed, reason, Errc::kAborted);
  }

 private:
  explicit LocalSession(engine::SessionOptions options);
  [[nodiscard]] Result<void> begin(Segment segment);
  void run_thread(std::atomic<int>& begun, Result<void>& result) noexcept;
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
  [[nodiscard]] Nanos idle(Nanos now, Nanos idle_since, Nanos deadline, Sleeper sleeper) noexcept;
  void signal() noexcept;

  // local_session_end.cc
  void check_failures() noexcept;
  void check_peers();
  void check_deadline(Nanos now) noexcept;
  void end_here(Errc code, std::string text) noexcept;
  void end_for_all(Errc code, const std::string& reason, Errc code_for_others) noexcept;
  [[nodiscard]] std::string describe(const Stage::Mismatch& mismatch) const;
  [[nodiscard]] std::string describe_missing() const;

  const engine::SessionOptions options_;
  engine::SessionEndLatch end_latch_;
  engine::FindingQueue findings_;
  std::optional<Segment> segment_;
  std::optional<engine::OpTable> table_;
  std::optional<Stage> stage_;
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
  Nanos spin_;  // of the thread that makes progress
  engine::StallMeter stall_meter_;
  std::mutex mutex_;  // for waits on changed_
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace sluice::local
