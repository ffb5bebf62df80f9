// Class CollectiveSession is a session as its callers see it: they start operations and wait for them. Class
// engine::Session moves the data through reducers, local::LocalSession through the memory of one host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "config/pool.h"
#include "core/ids.h"
#include "core/result.h"
#include "core/status.h"
#include "core/units.h"
#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/control/heartbeat_listener.h"
#include "gpu_client/engine/data_path/finding_queue.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/data_path/progress_thread.h"
#include "gpu_client/engine/data_path/straggler_stats.h"
#include "gpu_client/engine/recovery/recovery_counters.h"
#include "gpu_client/engine/trace/collective_observer.h"
#include "transport/rdma/memory.h"
#include "transport/transport.h"

namespace sluice::engine {

struct SessionStats {
  uint64_t operations = 0;  // ended with kOk
  transport::EndpointCounters lanes;
  uint32_t reducers = 0;            // dedicated ones, as configured
  uint32_t colocated_reducers = 0;  // of the first view
  uint32_t lane_connections = 0;
  uint32_t slot_bytes = 0;  // largest chunk
  Nanos round_trip = 0;     // PathStats, of the slowest lane connection when the session began
  WaitingStatus waiting;
  StragglerStats::Slowest slowest;
  RecoveryStats recovery;
  Nanos longest_stall = 0;  // StallMeter
  uint64_t bytes_resent = 0;
  uint64_t bytes_copied = 0;  // payload copied between the operations' buffers and the network
  uint32_t rdma_lanes = 0;
};

class CollectiveSession {
 public:
  virtual ~CollectiveSession() = default;

  // Submits an operation. Sets `handle` for test() and wait(), and sets request.deadline,
  // request.issued and request.on_device. Returns kExhausted when the table is full, kClosed after close(),
  // kInvalidArgument when a buffer is only partly in device memory, kUnsupported for another collective than
  // allreduce there and for block types without accepts_blocks(), or the code with which the session ended.
  // Any thread.
  [[nodiscard]] virtual Status start(OpRequest request, uint64_t& handle) = 0;
  // Sets `done` when the operation has ended. Then returns its status and releases its handle. Returns
  // kInvalidArgument for a released handle.
  [[nodiscard]] virtual Status test(uint64_t handle, bool& done) = 0;
  // The same, blocking until `deadline`. Returns kTimeout when the operation is still open.
  [[nodiscard]] virtual Status wait(uint64_t handle, Nanos deadline) = 0;
  virtual void progress() noexcept = 0;
  [[nodiscard]] virtual Rank rank() const noexcept = 0;
  [[nodiscard]] virtual uint32_t ranks() const noexcept = 0;
  // Whether all reducers of the session sum block types. Equal on all ranks.
  [[nodiscard]] virtual bool accepts_blocks() const noexcept = 0;
  // Whether errors about operations that differ name those of OpRequest::call.
  [[nodiscard]] virtual bool names_callers() const noexcept { return false; }
  // Who adds up contributions. Equal on all ranks.
  enum class Sums : uint8_t {
    kReducers,        // from all ranks
    kHostsExactly,    // each host, and reducers its partial sum in the accumulator's type
    kHostsConverted,  // the same; partial sums of OpRequest::is_converted are rounded to its dtype
    kOneHost          // nothing is sent
  };
  [[nodiscard]] virtual Sums sums() const noexcept = 0;
  [[nodiscard]] virtual Nanos linger() const noexcept = 0;

  // kOk, or the code and reason with which the session ended.
  [[nodiscard]] virtual Errc code() const noexcept = 0;
  [[nodiscard]] virtual std::string reason() const = 0;
  // The rank that ended the session: that was lost, left too early, failed, differed, was late or aborted.
  // wire::kNoRank if none is known, and while the session runs.
  [[nodiscard]] virtual Rank ended_by() const noexcept = 0;
  [[nodiscard]] virtual SessionStats stats() = 0;
  // Findings of operations without OpRequest::finding, with their handles. Any thread.
  [[nodiscard]] virtual FindingQueue& findings() noexcept = 0;
  // For one line of the session in the log.
  [[nodiscard]] virtual SessionLog log() const = 0;
  // The trace of this session; null without one. Valid as long as the session.
  [[nodiscard]] virtual CollectiveObserver* trace() const noexcept = 0;

  // Replaces the list of reducers, or with nullopt rereads its file. Effective on rank 0 only, and applied
  // later. Returns kUnsupported for a session that cannot change them, and kInvalidArgument when there is no
  // file.
  [[nodiscard]] virtual Result<void> set_reducers(std::optional<config::Pool> pool) = 0;
  // The errors of set_reducers() that have nothing to do with its list.
  [[nodiscard]] virtual Result<void> may_set_reducers() const = 0;
  // The dedicated reducers for another session of the same ranks, in an order that may differ between ranks
  // while the view changes.
  [[nodiscard]] virtual std::vector<config::Endpoint> usable_reducers() const = 0;

  // Registers memory with the RDMA devices, so that operations in it are not copied. The caller keeps it
  // mapped until deregister_memory(), and calls that with no open operation in it. A range may be
  // registered several times. Has no effect without RDMA. Returns kSystem with a device's error; the memory
  // is then not registered. Any thread.
  [[nodiscard]] virtual Result<void> register_memory(std::span<std::byte> bytes) = 0;
  // The same for memory that only devices can access, such as a GPU's. Operations in it are never copied at
  // this rank and have no payload checksum. Returns kUnsupported with the reason when the session cannot
  // use such memory.
  [[nodiscard]] virtual Result<void> register_device_memory(std::span<std::byte> bytes,
                                                            const transport::rdma::DmaBuf& dmabuf) = 0;
  // True when [at, at + size) is inside registered device memory. Any thread.
  [[nodiscard]] virtual bool is_device_memory(const std::byte* at, uint64_t size) const = 0;
  // Reverts one registration of either kind. Returns kInvalidArgument when the range is not registered.
  [[nodiscard]] virtual Status deregister_memory(std::span<std::byte> bytes) = 0;

  // Before close(), for one of several sessions that are closed together: if no operation is open, the other
  // ranks learn now that this one leaves. Does not wait. Only close() may follow.
  virtual void leave() noexcept {}
  // Waits for the open operations, leaves the session and closes it, within the linger time or until
  // `deadline`. Returns kTimeout when the time did not suffice, or the code with which the session ended
  // before. No other call may be in progress or follow.
  [[nodiscard]] virtual Status close(Nanos deadline) = 0;

  // Ends the session and sends the reason to the other ranks, which otherwise would wait for this rank. The
  // destructor waits until nothing accesses the buffers any more. Any thread.
  virtual void abort(Errc code, const std::string& reason) noexcept = 0;
  // The same at the caller's request: kClosed on this rank, kAborted on the others.
  virtual void abort_for_caller(const std::string& reason) noexcept = 0;
  // The same because of a rank of the session that this one is a part of, or of none (wire::kNoRank).
  virtual void abort_because_of(Rank /*at_fault*/, Errc code, const std::string& reason) noexcept {
    abort(code, reason);
  }
};

}  // namespace sluice::engine
