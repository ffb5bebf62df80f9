// A session as the C face sees it: the join, the hot core, the thread that drives it and the keeper behind
// one door.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/driver.h"
#include "gpu_client/engine/exchange.h"
#include "gpu_client/engine/fate.h"
#include "gpu_client/engine/join.h"
#include "gpu_client/engine/keeper.h"
#include "gpu_client/engine/op_table.h"
#include "gpu_client/engine/progress.h"
#include "gpu_client/engine/survival.h"
#include "transport/rdma/memory.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::engine {

struct SessionOptions {
  JoinOptions join;
  bool own_thread = true;  // false: test(), wait() and progress() drive
  bool payload_crc = true;
  bool keep_results = true;
  bool device_memory = false;  // may be known to the session
  Nanos op_timeout = 0;        // 0: none
  Nanos linger = 5 * kSecond;
};

struct SessionStats {
  uint64_t operations = 0;  // ended with kOk
  transport::EndpointCounters lanes;
  uint32_t reducers = 0;
  uint32_t lane_connections = 0;
  Keeper::Waiting waiting;
  Stragglers::Slowest slowest;
  SurvivalCounts survival;
  uint64_t bytes_resent = 0;
  uint64_t bytes_copied = 0;  // payload, between the operations' buffers and the network
  uint32_t rdma_lanes = 0;
};

class Session final : Driver::Listener, Keeper::Listener, Survival::Listener {
 public:
  // Joins; blocks as join_session does.
  [[nodiscard]] static Result<std::unique_ptr<Session>> create(SessionOptions options);
  // Without close() or abort(): the connections break, which the other ranks see as the loss of this one, of
  // a session that survives losses only at the absence deadline.
  ~Session();
  Session(const Session&) = delete;

  // kOk and a name for test() and wait(); kExhausted when the table is full; kClosed; kInvalidArgument where
  // a buffer lies in part only in device memory; or why the session ended. `request.deadline` and
  // `.on_device` are set here. Any thread.
  [[nodiscard]] Status allreduce(OpRequest request, uint64_t& name);
  // kInvalidArgument for a name that is over. `done`: the operation has ended with the status returned, and
  // its name is over.
  [[nodiscard]] Status test(uint64_t name, bool& done);
  // The same, blocking until `deadline`: kTimeout leaves the operation open.
  [[nodiscard]] Status wait(uint64_t name, Nanos deadline);
  void progress() noexcept { progress_->drive(); }
  [[nodiscard]] uint32_t ranks() const noexcept { return options_.join.who.ranks; }
  [[nodiscard]] Nanos linger() const noexcept { return options_.linger; }

  [[nodiscard]] Errc code() const noexcept { return fate_.code(); }
  [[nodiscard]] std::string reason() const { return fate_.text(); }
  [[nodiscard]] SessionStats stats();

  // The list of reducers is now another, or, with nothing, its file is to be read now. Counts at rank 0; what
  // it changes is done later. kUnsupported where losses are not survived, kInvalidArgument without a file.
  [[nodiscard]] Result<void> set_reducers(std::optional<config::Pool> pool);

  // From now on devices read and write these bytes where operations name them, which then are not copied. The
  // caller keeps them mapped until forget_memory(), before which no operation that names them is open. A
  // range may be known several times. Without RDMA nothing happens. kSystem with why a device refused: they
  // are not known then. Any thread.
  [[nodiscard]] Result<void> know_memory(std::span<std::byte> bytes);
  // The same of bytes that only devices may touch, a GPU's: operations on them are never copied at this end,
  // and have no payload checksum there. kUnsupported with why this session can't have them.
  [[nodiscard]] Result<void> know_device_memory(std::span<std::byte> bytes,
                                                const transport::rdma::DmaBuf& dmabuf);
  // Whether [at, at + size) lies whole in such memory. Any thread.
  [[nodiscard]] bool knows_device_memory(const std::byte* at, uint64_t size);
  // Of either kind. kInvalidArgument: they are not known.
  [[nodiscard]] Status forget_memory(std::span<std::byte> bytes);

  // Waits for the open operations, leaves, closes: all within the linger time, or until `deadline`. kOk;
  // kTimeout when it was not enough; or why the session ended before. No other call may be under way or
  // follow.
  [[nodiscard]] Status close(Nanos deadline = kNoDeadline);

  // Ends the session and tells the other ranks why, which else would wait for this one to come back. The
  // buffers are let go of by the destructor. Any thread.
  void abort(Errc code, const std::string& why) noexcept;

 private:
  explicit Session(SessionOptions options);
  [[nodiscard]] Result<void> begin(Membership membership);
  [[nodiscard]] Result<void> adopt_lanes(std::vector<Seat>& seats);
  // True when the operation had ended: `how` it did, and its name is over. False: `how` is kOk for one that
  // is open, kInvalidArgument for a name that is over. No status of an operation can be mistaken for these.
  [[nodiscard]] bool take_end(uint64_t name, Status& how);
  [[nodiscard]] std::string describe(const Ending& ending) const;
  [[nodiscard]] Result<void> may_know_device_memory();
  // Sets request.on_device; false: a buffer lies in part only there. With the submission lock.
  [[nodiscard]] bool find_device_memory(OpRequest& request) const noexcept;

  void on_driver_ended(const Ending& ending) noexcept override;
  void on_session_lost(Errc code, std::string text) noexcept override;
  void on_waiting(const Keeper::Waiting& waiting) noexcept override;
  void on_left() noexcept override;
  [[nodiscard]] uint64_t finished() const noexcept override;
  void on_attend() noexcept override;
  void on_link_lost(uint32_t link, Errc reason) noexcept override;
  void on_link_resumed(uint32_t link) noexcept override;
  void on_peer_gone(size_t peer, Errc code, std::string text) noexcept override;
  void on_view_query(size_t peer, const wire::ViewQuery& query) noexcept override;
  void on_view_commit(size_t peer, const wire::ViewCommit& commit) noexcept override;
  void on_drain_notice(size_t peer, const wire::DrainNotice& notice) noexcept override;
  void on_not_survived(const Error& why) noexcept override;
  void on_no_thread(const Error& why) noexcept override;
  template <typename F>
  void hand_on(F&& event) noexcept;
  void seal(Errc code, std::string text) noexcept;

  const SessionOptions options_;
  Fate fate_;
  std::shared_ptr<Keeper> keeper_;
  uint64_t kept_ = 0;                    // the keeper's name for this session; 0: not handed over
  std::vector<std::string> link_names_;  // "reducer 10.0.0.2:7470 lane 1", by link of the first view

  std::mutex submission_;  // callers only: the driver never takes it
  bool closing_ = false;
  std::vector<std::span<std::byte>>
      device_memory_;  // with the submission lock; those known twice are there twice
  std::atomic<uint64_t> empty_operations_{0};
  std::atomic<bool> begun_{false};  // all parts are there
  std::atomic<bool> leaving_{false}, left_{false};
  std::atomic<uint32_t> missing_ranks_{0}, missing_rank_{wire::kNoRank}, waited_ms_{0};

  // In the order of their making; the context, and with it the endpoints, goes before what they call back.
  std::unique_ptr<OpTable> table_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Exchange> exchange_;
  transport::rdma::KnownBytes known_ring_;
  std::unique_ptr<transport::tcp::TcpContext> context_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Survival> survival_;  // of a session that survives losses
};

}  // namespace sluice::engine
