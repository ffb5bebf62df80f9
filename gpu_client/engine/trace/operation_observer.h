// Class OperationObserver receives records of a session's operations, chunks, stalls and view changes: where
// the time went, and which results there were. A session without observers measures nothing
// (OperationRecorder). Records are plain values that an observer may copy.
//
// Threads: each call names its thread. No call may block, throw, or allocate for every chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "core/units.h"
#include "wire/dtype.h"
#include "wire/frame.h"

namespace sluice::engine {

// The parts of a time from issue to result. Of an operation: each chunk's time is divided, and the sums over
// the chunks are scaled to the operation's duration, so the parts add up to it.
struct TimeParts {
  Nanos in_window = 0;  // from the issue until the chunk was put on a lane connection for the first time
  Nanos waiting = 0;    // for the last rank; see divide_round_trip()
  Nanos adding = 0;     // estimated from the bytes; see kAddedBytesPerSecond
  Nanos on_wire = 0;    // the rest: both directions, queues, and stalls during the round trip
  friend bool operator==(const TimeParts&, const TimeParts&) = default;
};

struct OperationRecord {
  uint64_t handle = 0;  // of Session::start(), so that the issuer can find its record
  uint32_t op_id = 0;   // number of the operation in the session; wraps
  uint64_t bytes = 0;
  uint64_t count = 0;  // elements
  wire::Kind kind = wire::Kind::kAllreduce;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Errc status = Errc::kOk;
  bool on_device = false;  // the CPU cannot access the result
  // The number of the session's oldest operation that is still open or not begun: those with lower numbers
  // have ended. Operations do not end in the order of their numbers.
  uint32_t oldest_open = 0;
  // The monotonic clock. 0: it did not happen.
  Nanos issued = 0;
  Nanos first_put = 0;
  Nanos last_put = 0;
  Nanos first_result = 0;
  Nanos done = 0;
  TimeParts parts{};
  uint32_t chunks = 0;            // with a result
  uint32_t reducers = 0;          // that added chunks of it; 64 and more count as 64
  uint32_t last_rank = 0;         // the rank with the largest lag
  uint32_t last_rank_lag_us = 0;  // 0: no rank waited
  uint64_t collective = 0;        // CollectiveRecord::number, set by the observer; 0: not known
};

struct ChunkTiming {
  uint64_t chunk = 0;  // number q in the session
  uint32_t op_id = 0;
  uint32_t bytes = 0;
  uint32_t reducer = 0;  // index of on_reducer_added()
  uint32_t lane = 0;     // index among the session's lane connections
  Nanos put = 0;
  Nanos result = 0;
  TimeParts parts{};
  uint32_t last_rank = 0;
  uint32_t lag_us = 0;
};

// A time in which recovery had to act, by the definition of RecoveryCounters.
struct StallRecord {
  Nanos begin = 0;
  Nanos end = 0;
  std::array<char, 160> reason{};  // "reducer 10.0.0.2:7470: connection reset"
};

struct ViewChangeRecord {
  Nanos at = 0;
  uint32_t version = 0;
  uint32_t reducers = 0;  // that are left or were added
};

class OperationObserver {
 public:
  virtual ~OperationObserver() = default;

  // Reducers are numbered from 0 in this order. Before the session's first operation, or on the thread of the
  // progress loop.
  virtual void on_reducer_added(std::string_view /*name*/) noexcept {}
  // The thread of the progress loop, before the issuer can see that the operation has ended. `result` is what
  // this rank received, in the issuer's buffer and valid during the call. It is empty where this rank
  // receives nothing, on a device, and when the operation failed.
  virtual void on_operation_ended(const OperationRecord& /*operation*/,
                                  std::span<const std::byte> /*result*/) noexcept {}
  // The thread of the progress loop. For every chunk, so it must be cheap.
  virtual void on_chunk_ended(const ChunkTiming& /*chunk*/) noexcept {}
  // The thread of recovery.
  virtual void on_stall_ended(const StallRecord& /*stall*/) noexcept {}
  virtual void on_view_changed(const ViewChangeRecord& /*change*/) noexcept {}
};

}  // namespace sluice::engine
