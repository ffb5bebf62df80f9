// Class StreamPump connects the device with the network. It waits until the contribution of a segment is in
// host memory, passes it to the session, waits for the result, and then releases the device stream that waits
// for that result. Segments keep their order in both directions.
//
// Threads. One thread ("sluice-out") waits for events and starts operations on the session; those that wait
// for no event, and follow none that does, submit() starts itself. Another ("sluice-in") waits for results
// and writes the completion word. All public functions but start() and close() may be called from any thread.
//
// Errors. After a failure of the session or the device, segments pass through at once without a result, so
// that no stream stays blocked.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/result.h"
#include "gpu_client/engine/session/collective_session.h"
#include "gpu_client/pipeline/device.h"

namespace sluice::pipeline {

// One operation of the caller on a stream, or one group of operations, until its end.
// The pump's mutex protects all members but `done`.
struct StreamOperation {
  uint64_t caller_operations = 1;  // operations of the caller that it contains
  // Network operations that have not completed, plus one while the work is being enqueued.
  uint64_t unfinished = 1;
  Errc status = Errc::kOk;  // the first failure
  uint64_t request = 0;     // the caller's; 0: none. Constant once set
  uint64_t segments = 0;    // that have completed
  engine::FindingSum findings;
  // Complete when the results are in the caller's buffers. Null when the caller has no request, and when they
  // are there as soon as the operation is finished. Constant once set.
  std::unique_ptr<Event> done;

  [[nodiscard]] bool is_finished() const noexcept { return unfinished == 0; }
};

// One operation of the session: a segment, or the exponents of a batch.
struct NetworkOperation {
  // Completes when the contribution is in place. Null: it is in place together with the previous one's.
  std::unique_ptr<Event> ready;
  engine::OpRequest request;
  std::vector<size_t> counts;  // of `request`, which outlives the caller's
  uint32_t number = 0;         // the value of the completion word from its completion on
  bool is_segment = true;
  std::shared_ptr<StreamOperation> operation;
  // Set by the pump.
  uint64_t handle = 0;  // of the session's operation; 0: refused, for the reason in `status`
  std::optional<engine::OperationFinding> finding;
  Status status;
};

class StreamPump {
 public:
  // All arguments outlive the pump.
  StreamPump(engine::CollectiveSession& session, Device& device, uint32_t* completion_word)
      : session_(session), device_(device), completion_word_(completion_word) {}
  // Returns kSystem if a thread cannot be started.
  [[nodiscard]] Result<void> start();
  // Closes with a deadline that has passed, unless close() was called.
  ~StreamPump() { close(0); }
  StreamPump(const StreamPump&) = delete;

  // Returns the event of a completed network operation for reuse, or null.
  [[nodiscard]] std::unique_ptr<Event> acquire_spare_event();
  // Calls of several threads follow one another, in the order of the operations on all ranks.
  void submit(NetworkOperation network);
  // Returns the number of network operations that were submitted and have not completed.
  [[nodiscard]] uint64_t inflight();

  // Called once for each operation, after its last submit(). `failure`: enqueuing stopped early for this
  // reason.
  void finish_submission(StreamOperation& operation, Errc failure);
  // Blocks until the operation is finished and sets `result`. Returns false at the deadline.
  [[nodiscard]] bool wait(const StreamOperation& operation, Nanos deadline, Errc& result);

  struct Counters {
    uint64_t operations = 0;  // caller's operations that succeeded
    uint64_t segments = 0;
  };
  [[nodiscard]] Counters counters();

  // Waits until no network operation is in flight, and then ends the threads. Fails the session at the
  // deadline, which ends all of them. submit() must not be called afterwards.
  void close(Nanos deadline);

 private:
  void run_out() noexcept;
  void run_in() noexcept;
  // Starts the only operation of `current`, without the lock, and moves it to in_.
  void start_unlocked(std::unique_lock<std::mutex>& lock, std::list<NetworkOperation>& current) noexcept;
  void start_reduction(NetworkOperation& network) noexcept;
  // Returns whether a caller may be waiting for the completion.
  [[nodiscard]] bool complete(NetworkOperation& network) noexcept;
  void finish_one(StreamOperation& operation, Errc status) noexcept;
  void report_finding(const StreamOperation& operation) noexcept;

  engine::CollectiveSession& session_;
  Device& device_;
  uint32_t* const completion_word_;
  std::mutex mutex_;
  std::condition_variable out_ready_;     // thread sluice-out has work
  std::condition_variable in_ready_;      // thread sluice-in has work
  std::condition_variable finished_;      // an operation finished, or nothing is in flight
  std::list<NetworkOperation> out_, in_;  // the threads move nodes between them and need no memory for it
  uint64_t inflight_ = 0;
  bool is_starting_ = false;  // a thread starts an operation of the session, which precedes those in out_
  bool closing_ = false;
  Counters counters_;
  std::vector<std::unique_ptr<Event>> spare_events_;
  std::thread out_thread_, in_thread_;
};

}  // namespace sluice::pipeline
