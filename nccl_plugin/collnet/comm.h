// One head of one communicator: its session and the requests NCCL has open on it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "gpu_client/engine/session.h"
#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/collnet/latency.h"
#include "nccl_plugin/collnet/ranges.h"

namespace sluice::nccl::collnet {

// Progress thread. A place in the Comm's table; NCCL holds its address until done.
class Request {
 public:
  Comm* comm = nullptr;
  bool open = false;
  bool done = false;  // in the session, and counted no more; NCCL has not been told
  uint64_t name = 0;  // the operation's in the session
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t bytes = 0;
  Nanos begun = 0;
};

class Comm {
 public:
  // NCCL has at most 8 steps in 8 groups open.
  static constexpr size_t kMostRequests = 64;

  // `budget`: bytes of requests under way at a time. One that is larger is taken when no other is.
  Comm(std::unique_ptr<engine::Session> session, uint32_t nodes, uint32_t rank, uint32_t reducers,
       uint64_t budget);
  ~Comm();
  Comm(const Comm&) = delete;

  // Progress thread.
  [[nodiscard]] Status start(const void* send, void* receive, size_t count, int data_type, int op,
                             Request** request) noexcept;
  [[nodiscard]] Status test(Request& request, bool* done, size_t* bytes) noexcept;

  // Service thread.
  [[nodiscard]] Ranges& ranges() noexcept { return ranges_; }
  void quiesce(const Ranges::Range& range) noexcept;
  // Devices read and write these bytes in place, or don't: an error is a word in the log.
  void know(std::span<std::byte> bytes) noexcept;
  void forget(std::span<std::byte> bytes) noexcept;
  void leave() noexcept;

 private:
  [[nodiscard]] bool over_budget(uint64_t more) const noexcept {
    return under_way_ != 0 && under_way_ + more > budget_;
  }
  // Looks which requests are done. NCCL tests nothing of a group whose request was refused, so what test()
  // has been told of is not what is under way.
  [[nodiscard]] Status reap() noexcept;
  // Asks the session, unless it is known.
  [[nodiscard]] Status look(Request& request) noexcept;
  // Ends the session with requests open: the other nodes are told, and no buffer is touched any more.
  void abandon() noexcept;
  // The first call that sees the session's end says why; later ones return the same status and touch nothing.
  void tell_end(Status status) noexcept;

  std::mutex ending_;  // guards session_ between the progress thread's calls and quiesce(); never waited for
                       // in normal work
  std::unique_ptr<engine::Session> session_;
  const uint32_t nodes_;
  const uint32_t rank_;  // of this node
  const uint32_t reducers_;
  const uint64_t budget_;
  std::array<Request, kMostRequests> requests_;
  std::array<uint8_t, kMostRequests> free_;  // places that are not open: the first kMostRequests - open_
  std::atomic<uint32_t> open_{0};
  uint64_t under_way_ = 0;  // bytes; progress thread's, as every write of open_
  Errc ended_ = Errc::kOk;  // anything else: no call reaches the session any more
  Ranges ranges_;
  bool told_of_copies_ = false;

  void write_stats(const engine::Stragglers::Slowest& slowest,
                   const engine::SurvivalCounts& survival) noexcept;

  const Nanos begun_;
  uint64_t calls_ = 0;
  uint64_t bytes_ = 0;
  Nanos busy_ = 0;  // with a request under way, in all
  Nanos busy_since_ = 0;
  uint32_t under_way_count_ = 0;
  Latency latency_;
};

}  // namespace sluice::nccl::collnet
