// The operations of one session that are open, or ended and not yet asked about. A table of fixed size:
// nothing is allocated after construction, and a request whose operation is over is detected, not followed.
//
// Threads. open(), find() and release() are called under the session's submission lock. end() and the
// driver's fields belong to the thread that drives the exchange. Between the two an operation is handed over
// through a ring; its end comes back through `state`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/status.h"
#include "core/units.h"
#include "wire/dtype.h"

namespace sluice::engine {

enum class OpState : uint32_t { kFree, kOpen, kEnded };

inline constexpr uint32_t kNoOperation = 0xffffffff;

struct OpRequest {
  const std::byte* send = nullptr;  // count elements; the caller's until the operation has ended
  std::byte* recv = nullptr;        // may be equal to send
  uint64_t count = 0;
  wire::DType dtype = wire::DType::kF32;
  wire::Op op = wire::Op::kSum;
  Nanos deadline = 0;      // 0: none
  bool on_device = false;  // send or recv lies where no processor may touch it
};

struct Operation {
  // Constant from open() to release().
  OpRequest request;
  uint64_t bytes = 0;
  uint32_t op_id = 0;        // counts the session's operations, wraps
  uint32_t fingerprint = 0;  // wire::fingerprint
  uint32_t chunk_bytes = 0;
  uint64_t first_chunk = 0;  // q of the first one
  uint64_t chunk_count = 0;  // 0 for an operation of 0 bytes
  uint32_t generation = 0;

  // The driver's.
  uint64_t chunks_done = 0;
  uint32_t previous = kNoOperation;  // open operations in the order they were issued
  uint32_t next = kNoOperation;

  Errc status = Errc::kOk;  // written before `state` says kEnded
  // Stored by the driver and loaded by waiters in sequentially consistent order: Progress relies on it to
  // lose no wake-up.
  std::atomic<OpState> state{OpState::kFree};
};

class OpTable {
 public:
  static constexpr uint32_t kCapacity = 1024;

  // What chunking is a function of (PROTOCOL.md section 8).
  OpTable(uint32_t lane_connections, uint32_t slot_bytes);

  // Takes a place and numbers the operation and its chunks: the order of calls is the order of the session.
  // Nothing when all places are taken. `request` must be valid: known dtype and op, count * size within 63
  // bits.
  [[nodiscard]] std::optional<uint32_t> open(const OpRequest& request) noexcept;

  // "Index and generation" as one word, never 0.
  [[nodiscard]] uint64_t name_of(uint32_t index) const noexcept;
  // kNoOperation for a name that is over, or never was.
  [[nodiscard]] uint32_t find(uint64_t name) const noexcept;
  void release(uint32_t index) noexcept;

  // Driver thread: the operation is over; its buffers are the caller's again.
  void end(uint32_t index, Errc status) noexcept;

  [[nodiscard]] Operation& operator[](uint32_t index) noexcept { return operations_[index]; }
  [[nodiscard]] const Operation& operator[](uint32_t index) const noexcept { return operations_[index]; }
  // Operations that have not ended. Any thread.
  [[nodiscard]] uint32_t open_count() const noexcept { return open_.load(std::memory_order_seq_cst); }

 private:
  const uint32_t lane_connections_;
  const uint32_t slot_bytes_;
  uint32_t next_op_id_ = 0;
  uint64_t next_chunk_ = 0;
  std::vector<Operation> operations_;
  std::vector<uint32_t> free_;  // never grows past its reserve
  std::atomic<uint32_t> open_{0};
};

}  // namespace sluice::engine
