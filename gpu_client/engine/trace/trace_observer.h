// Class TraceObserver writes the trace of one session of one rank to the file that SLUICE_TRACE names
// (docs/guides/trace.md): every operation, stall and view change, a sample of the chunks, and for each
// reducer the totals of all chunks.
//
// Threads: the calls put records of a fixed size into bounded rings, and the thread of RecordWriter formats
// them. Records that do not fit are counted, and the file says how many were lost.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/spsc_ring.h"
#include "core/units.h"
#include "gpu_client/engine/trace/collective_observer.h"
#include "gpu_client/engine/trace/operation_observer.h"
#include "gpu_client/engine/trace/record_writer.h"
#include "gpu_client/engine/trace/trace_format.h"
#include "gpu_client/engine/trace/trace_record.h"

namespace sluice::engine {

class TraceObserver final : public OperationObserver, public CollectiveObserver, RecordWriter::Source {
 public:
  static constexpr size_t kRecords = 8192;  // in the ring; about 1.5 MB
  // The sampled chunks of a reducer do not overlap and begin at least so far apart.
  static constexpr Nanos kSampleInterval = kMillisecond;
  static constexpr Nanos kTotalsInterval = 250 * kMillisecond;

  // True when SLUICE_TRACE is set.
  [[nodiscard]] static bool is_requested() noexcept;
  // Returns null when SLUICE_TRACE is not set and, after a warning, when the file cannot be written.
  [[nodiscard]] static std::shared_ptr<TraceObserver> create(const TraceSession& session) noexcept;
  // Writes the rest and ends the file. No other call may be in progress.
  ~TraceObserver() override;
  TraceObserver(const TraceObserver&) = delete;

  void on_reducer_added(std::string_view name) noexcept override;
  void on_operation_ended(const OperationRecord& operation,
                          std::span<const std::byte> result) noexcept override;
  void on_chunk_ended(const ChunkTiming& chunk) noexcept override;
  void on_stall_ended(const StallRecord& stall) noexcept override;
  void on_view_changed(const ViewChangeRecord& change) noexcept override;
  void on_collective_running(uint64_t number) noexcept override;
  void on_collective_ended(const CollectiveRecord& collective) noexcept override;

 private:
  struct Reducer {
    ReducerTotals totals{};
    Nanos next_sample = 0;
    Nanos next_totals = 0;
  };

  TraceObserver(std::unique_ptr<RecordWriter> writer, const TraceSession& session);
  [[nodiscard]] Result<void> append_records(RecordWriter& writer, bool last) override;
  void append_end(std::string& out, std::string_view reason) override;

  std::vector<Reducer> reducers_;  // by the thread of the progress loop, at the end by the writer
  SpscRing<TraceRecord> records_{kRecords};
  SpscRing<TraceRecord> recovery_records_{64};  // of another thread, hence another ring
  SpscRing<CollectiveRecord> collectives_{512};
  std::atomic<uint64_t> collective_{0};  // to which the operations that end belong

  // By the writer's thread.
  TraceFormat format_;
  uint64_t lost_ = 0;

  const std::unique_ptr<RecordWriter> writer_;
};

}  // namespace sluice::engine
