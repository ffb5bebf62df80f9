// Class OperationRecorder measures the operations of a session for its observers. It exists only in a session
// with observers: ChunkScheduler then binds each lane connection through an ObservedLane.
//
// Threads: the thread of the progress loop, except report_stall() and report_view_change(), which belong to
// the thread of recovery, and add_reducer(), which may also run before the first operation.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/units.h"
#include "gpu_client/engine/data_path/observed_lane.h"
#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/engine/trace/operation_observer.h"
#include "wire/extension.h"

namespace sluice::engine {

class ChunkScheduler;

using OperationObservers = std::vector<std::shared_ptr<OperationObserver>>;

// The record of an open operation, without what is measured of it.
[[nodiscard]] OperationRecord begin_record(const OpTable& table, uint32_t operation) noexcept;

class OperationRecorder {
 public:
  // `scheduler` outlives the recorder. `rank` of `ranks` is this one.
  OperationRecorder(ChunkScheduler& scheduler, OperationObservers observers, Rank rank, uint32_t ranks);
  OperationRecorder(const OperationRecorder&) = delete;

  // The next `lanes` lane connections of the scheduler belong to this reducer. May allocate.
  void add_reducer(const std::string& name, uint32_t lanes);
  // The observed lane of lane connection i. Its reducer must have been added.
  [[nodiscard]] ObservedLane& lane(uint32_t i) noexcept { return lanes_[i]; }

  // Before OpTable::end(), and after the operation is no longer the scheduler's oldest one.
  void operation_ended(uint32_t operation, Errc status) noexcept;

  void report_stall(Nanos begin, Nanos end, const std::string& reason) noexcept;
  void report_view_change(uint32_t version, uint32_t reducers) noexcept;

  // For ObservedLane. Returns the operation of the chunk, or kNoOperation when the chunk is a kept result.
  [[nodiscard]] uint32_t chunk_put(uint64_t chunk, Nanos now) noexcept;
  struct ChunkResult {
    uint64_t chunk = 0;
    uint32_t operation = 0;
    uint32_t lane = 0;
    Nanos put = 0;
    Nanos result = 0;
    wire::ResultInfo info{};
  };
  void chunk_result(ChunkResult c) noexcept;

 private:
  // What was measured of an open operation, stored at its index in the table.
  struct Measurement {
    uint32_t generation = 0;  // of the operation; another one: stale
    OperationRecord record{};
    TimeParts sums{};
    uint64_t reducers = 0;  // a bit for each of the first 64
  };
  struct ReducerState {
    std::array<Nanos, 33> shortest{};  // round trip by bit width of the chunk's length; 0: none yet
  };

  [[nodiscard]] Measurement& measurement(uint32_t operation) noexcept;

  ChunkScheduler& scheduler_;
  const OperationObservers observers_;
  const Rank rank_;
  const uint32_t ranks_;
  std::vector<ReducerState> reducers_;
  std::vector<uint32_t> reducer_of_lane_;
  std::deque<ObservedLane> lanes_;  // a deque, because endpoints refer to its elements
  std::vector<Measurement> measurements_;
  uint32_t next_op_id_ = 0;  // one past the highest number of an operation that has ended
};

}  // namespace sluice::engine
