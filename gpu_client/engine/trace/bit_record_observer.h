// Class BitRecordObserver writes the bit record of one session of one rank to the file that SLUICE_BITS names
// (docs/guides/verify-bits.md): for each operation the hash of the result that this rank received. The record
// is always complete from the first operation up to its end, because a gap would hide a difference.
//
// Threads: on_operation_ended() hashes the result on the thread of the progress loop, which serves this
// session only, before the issuer can see the operation's end and change the buffer. The thread of
// RecordWriter does the rest: lines, running hash and file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/spsc_ring.h"
#include "gpu_client/engine/trace/bit_record_format.h"
#include "gpu_client/engine/trace/operation_observer.h"
#include "gpu_client/engine/trace/record_writer.h"

namespace sluice::engine {

// What the progress loop passes to the writer.
struct EndedOperation {
  BitOperation operation{};
  uint64_t oldest_open = 0;
  Errc status = Errc::kOk;
};

class BitRecordObserver final : public OperationObserver, RecordWriter::Source {
 public:
  static constexpr size_t kRecords = 32768;  // in the ring; 1.5 MB

  // True when SLUICE_BITS is set.
  [[nodiscard]] static bool is_requested() noexcept;
  // Returns null when SLUICE_BITS is not set and, after a warning, when the file cannot be written.
  [[nodiscard]] static std::shared_ptr<BitRecordObserver> create(const BitRecordSession& session) noexcept;
  // Writes the rest and ends the file. No other call may be in progress.
  ~BitRecordObserver() override { writer_->stop(); }
  BitRecordObserver(const BitRecordObserver&) = delete;

  void on_operation_ended(const OperationRecord& operation,
                          std::span<const std::byte> result) noexcept override;

 private:
  explicit BitRecordObserver(std::unique_ptr<RecordWriter> writer) : writer_(std::move(writer)) {}
  [[nodiscard]] uint64_t number_of(uint32_t op_id) noexcept;
  [[nodiscard]] Result<void> append_records(RecordWriter& writer, bool last) override;
  void append_end(std::string& out, std::string_view reason) override;
  [[nodiscard]] Result<void> append_until(RecordWriter& writer, uint64_t oldest_open);

  SpscRing<EndedOperation> ended_{kRecords};
  uint64_t last_number_ = 0;  // by the thread of the progress loop
  bool is_full_ = false;      // by the same thread: the ring has refused a record, and gets no later one

  // By the writer's thread.
  std::vector<EndedOperation> waiting_;  // in the order of their numbers, for operations that are open
  RunningHash running_;
  std::string failed_operation_;  // why the record has no more operations; empty: it continues

  const std::unique_ptr<RecordWriter> writer_;
};

}  // namespace sluice::engine
