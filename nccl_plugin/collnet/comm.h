#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "gpu_client/engine/session/session.h"
#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/collnet/latency_histogram.h"
#include "nccl_plugin/collnet/registered_ranges.h"
#include "nccl_plugin/profiler/profiler.h"

namespace sluice::nccl::collnet {

// Request is one iallreduce. It is an entry of its Comm's table; NCCL holds its address until test() reports
// done. Progress thread.
class Request {
 public:
  Comm* comm = nullptr;
  bool open = false;
  bool done = false;       // in the session; NCCL may not know it yet
  uint64_t operation = 0;  // handle of the operation in the session
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t bytes = 0;
  Nanos begin = 0;
};

// Comm runs the requests of NCCL for one head of one communicator in a session.
class Comm {
 public:
  // NCCL opens at most 8 steps in 8 groups.
  static constexpr size_t kMaxRequests = 64;

  // `window_bytes`: most bytes of running requests per reducer. A larger request runs alone. `communicator`:
  // NCCL's id.
  Comm(std::unique_ptr<engine::Session> session, uint32_t nodes, uint32_t rank, uint64_t window_bytes,
       uint64_t communicator);
  ~Comm();
  Comm(const Comm&) = delete;

  // Progress thread.
  [[nodiscard]] Status start(const void* send, void* receive, size_t count, int data_type, int op,
                             Request** request) noexcept;
  [[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

  // Service thread.
  [[nodiscard]] RegisteredRanges& registered_ranges() noexcept { return ranges_; }
  // Ends the session if an open request uses the range.
  void quiesce(const RegisteredRanges::Range& range) noexcept;
  // Allow or end in-place access of RDMA devices to these bytes. After an error, which is logged, the bytes
  // are copied.
  void register_memory(std::span<std::byte> bytes) noexcept;
  void deregister_memory(std::span<std::byte> bytes) noexcept;
  void close() noexcept;

 private:
  [[nodiscard]] bool exceeds_budget(uint64_t more) const noexcept {
    return running_bytes_ != 0 && running_bytes_ + more > budget_;
  }
  // Updates all open requests. NCCL does not test requests of a group whose newest request was refused, so
  // test() alone would not find that they are done.
  [[nodiscard]] Status poll_requests() noexcept;
  [[nodiscard]] Status poll_request(Request& request) noexcept;
  // Ends the session with requests open: informs the other nodes; no buffer is accessed any more.
  void abort_session() noexcept;
  // Records the end of the session and logs its reason. Later calls return the same status and access
  // nothing.
  void record_end(Status status) noexcept;
  // Logs the verdict of a communicator about which NCCL asks no tuner of this plugin: in 2.20, in 2.21 after
  // the first communicators, or with another tuner.
  void log_verdict_without_tuner() noexcept;

  // Guards session_: the calls of the progress thread against quiesce(). Not contended in normal work.
  std::mutex mutex_;
  std::unique_ptr<engine::Session> session_;
  std::optional<profiler::Attachment> attachment_;  // ends before the session
  const uint32_t nodes_;
  const uint32_t rank_;       // of this node
  const uint32_t reducers_;   // dedicated
  const uint32_t colocated_;  // co-located reducers
  const uint64_t budget_;
  std::array<Request, kMaxRequests> requests_;
  std::array<uint8_t, kMaxRequests> free_;  // free entries: the first kMaxRequests - open_
  std::atomic<uint32_t> open_{0};           // written by the progress thread
  uint64_t running_bytes_ = 0;              // progress thread
  Errc end_ = Errc::kOk;                    // other than kOk: the session has ended
  RegisteredRanges ranges_;
  bool logged_copies_ = false;
  bool logged_verdict_ = false;  // progress thread

  void write_stats(const engine::SessionStats& stats) noexcept;

  const Nanos begin_;
  uint64_t operations_ = 0;
  uint64_t bytes_ = 0;
  Nanos busy_ = 0;  // total time with running requests
  Nanos busy_since_ = 0;
  uint32_t running_requests_ = 0;
  LatencyHistogram latency_;
};

}  // namespace sluice::nccl::collnet
