// Class OpTable stores the session's operations from open() until the caller has read their status. The table
// has a fixed size. A handle of a released operation is detected.
//
// open(), find() and the two that release need the session's submission lock. end() and the progress loop's
// fields of Operation belong to the thread that runs the progress loop. A ring passes operations to that
// thread; `state` tells the callers that an operation has ended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "core/units.h"
#include "gpu_client/engine/data_path/finding.h"
#include "wire/dtype.h"
#include "wire/extension.h"
#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::engine {

enum class OpState : uint32_t { kFree, kOpen, kEnded };

inline constexpr uint32_t kNoOperation = 0xffffffff;

// Receives the end of operations, on the thread that makes progress.
class EndListener {
 public:
  virtual void on_operation_ended() noexcept = 0;

 protected:
  ~EndListener() = default;
};

// The buffers are valid, and `send` is unchanged, until the operation has ended. They have `count` elements,
// but of reduce-scatter `recv`, and of all-gather `send`, have this rank's part only. A buffer, or this
// rank's part of one, may be equal to the other buffer.
struct OpRequest {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;  // of reduce: only the root's is used
  uint64_t count = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Nanos deadline = 0;         // 0: none
  Nanos issued = 0;           // set in a session with observers (OperationRecorder)
  bool on_device = false;     // send or recv is memory that the CPU cannot access
  bool caller_waits = false;  // the caller calls wait() at once, so no thread needs to wake up for progress
  bool is_converted = false;  // to `dtype`, from f32: partial sums of hosts may be too
  wire::Kind kind = wire::Kind::kAllreduce;
  Rank root = 0;  // of reduce and broadcast
  // Of reduce-scatter and all-gather: the elements of each rank's part. Empty: count / ranks. Read by open().
  std::span<const size_t> counts = {};
  // On a rail: the fields PIECE_OF of protocol.md, on which all hosts must agree. Read by open().
  std::span<const std::byte> piece_of = {};
  // What of it a reducer shows if they disagree.
  struct Call {
    uint64_t count = 0;
    wire::Caller caller;
  };
  std::optional<Call> call{};
  // Where the operation's finding goes, before the operation ends, if not to Session::findings(). Valid until
  // then.
  std::optional<OperationFinding>* finding = nullptr;
  EndListener* listener = nullptr;  // called after the operation has ended; may be null
};

// One chunk of an operation.
struct ChunkPlace {
  Rank owner = 0;       // of kinds whose chunks have one; the number of a group (Operation::parts_per_chunk)
  uint64_t part = 0;    // bytes from the operation's start to the part
  uint64_t within = 0;  // bytes from there to the chunk
  uint32_t length = 0;
};

struct Operation {
  // Constant from open() to release().
  OpRequest request;
  uint64_t bytes = 0;
  uint32_t op_id = 0;        // number of the operation in the session; wraps
  uint32_t fingerprint = 0;  // wire::fingerprint
  uint32_t chunk_bytes = 0;
  uint64_t first_chunk = 0;  // chunk number q of the first chunk
  uint64_t chunk_count = 0;  // 0 for an operation of 0 bytes
  uint64_t part_bytes = 0;   // of each rank's part; 0: all is one part, or the parts differ
  // More than one: the ranks are in groups of so many, which take turns, and a chunk has the same bytes of
  // the parts of all ranks of a group. `within` and `length` of its place are of each part. All ranks: the
  // operation is one chunk.
  uint32_t parts_per_chunk = 1;
  uint32_t counts_crc = 0;  // CRC32C of the parts' counts, each u64, if they differ; else 0
  uint32_t generation = 0;
  std::vector<ChunkPlace> places;  // by chunk, where the parts differ

  // The progress_loop's.
  uint64_t chunks_done = 0;
  FindingSum findings;
  uint32_t previous = kNoOperation;  // open operations in the order they were issued
  uint32_t next = kNoOperation;

  Errc status = Errc::kOk;  // written before `state` says kEnded
  // Stored by the progress_loop and loaded by waiters in sequentially consistent order: ProgressThread
  // relies on it to lose no wake-up.
  std::atomic<OpState> state{OpState::kFree};
};

class OpTable {
 public:
  static constexpr uint32_t kCapacity = 1024;

  // The chunk size is a function of the first two values (protocol.md section 8). `parts_per_chunk` divides
  // the number of ranks. It is that of operations with equal parts, where chunks are large enough; and if it
  // is more than one, such an operation that fits into one chunk is one.
  OpTable(uint32_t lane_connections, const wire::ChunkSizes& chunk_sizes, uint32_t ranks,
          uint32_t parts_per_chunk = 1);

  // Allocates an entry and numbers the operation and its chunks. The order of the calls is the order of the
  // operations in the session. Returns nullopt when the table is full. `request` must be valid: known dtype,
  // op and kind, count * size below 2^63, a root or parts of the session's ranks. Allocates memory for
  // unequal parts only, and may then throw std::bad_alloc.
  [[nodiscard]] std::optional<uint32_t> open(const OpRequest& request);

  // The handle of an open operation: index and generation in one word, never 0.
  [[nodiscard]] uint64_t handle_of(uint32_t index) const noexcept;
  // Returns kNoOperation for a handle that was released or never existed.
  [[nodiscard]] uint32_t find(uint64_t handle) const noexcept;
  void release(uint32_t index) noexcept;
  // Returns true when the operation has ended: sets `status` and releases the handle. Otherwise sets `status`
  // to kOk for an open operation and to kInvalidArgument for a released handle.
  [[nodiscard]] bool release_if_ended(uint64_t handle, Status& status) noexcept;

  // Progress loop's thread: ends the operation. From now on its buffers belong to the caller.
  void end(uint32_t index, Errc status) noexcept;

  [[nodiscard]] Operation& operator[](uint32_t index) noexcept { return operations_[index]; }
  [[nodiscard]] const Operation& operator[](uint32_t index) const noexcept { return operations_[index]; }
  // Operations that have not ended. Any thread.
  [[nodiscard]] uint32_t open_count() const noexcept { return open_.load(std::memory_order_seq_cst); }

  // What `rank` receives of the operation, once it has ended with kOk: whole and in order. Empty where the
  // rank receives nothing and on a device.
  [[nodiscard]] std::span<const std::byte> result(uint32_t index, Rank rank) const noexcept;
  // The chunk of the operation with this number in the session.
  [[nodiscard]] ChunkPlace place(const Operation& o, uint64_t chunk) const noexcept;

 private:
  void divide_into_parts(Operation& o, const OpRequest& request, size_t element) const;
  void group_parts(Operation& o, wire::DType dtype) const noexcept;

  const uint32_t lane_connections_;
  const wire::ChunkSizes chunk_sizes_;
  const uint32_t ranks_;
  const uint32_t parts_per_chunk_;
  uint32_t next_op_id_ = 0;
  uint64_t next_chunk_ = 0;
  std::vector<Operation> operations_;
  std::vector<uint32_t> free_;  // never grows past its reserve
  std::atomic<uint32_t> open_{0};
};

}  // namespace sluice::engine
