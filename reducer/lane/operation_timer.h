// Class OperationTimer measures how long a lane takes for its part of each operation of one session.
//
// The duration runs from the first contribution to the last result, both by the time of the lane's turn.
// Lane thread only.
#pragma once

#include <cstdint>

#include "core/units.h"
#include "reducer/lane/lane_counters.h"
#include "wire/dtype.h"

namespace sluice::reducer {

class OperationTimer {
 public:
  // Results arrive in the order of their operations. The lane does not know which chunk of an operation is
  // its last, since the others belong to other lanes and reducers. So the result of the next operation ends
  // one.
  void record_result(uint32_t op_id, wire::Op op, Nanos first_arrival, Nanos now,
                     LaneCounters& counters) noexcept {
    if (!is_running_ || op_id != op_id_) {
      finish(counters);
      is_running_ = true;
      op_id_ = op_id;
      op_ = op;
      began_ = first_arrival;
    }
    last_result_ = now;
  }

  // Counts the operation in progress. Also called at the end of the session, for its last operation.
  void finish(LaneCounters& counters) noexcept {
    if (!is_running_) return;
    is_running_ = false;
    const auto us = static_cast<uint64_t>((last_result_ - began_) / kMicrosecond);
    counters.operation_durations[static_cast<size_t>(op_)].add(us);
  }

 private:
  Nanos began_ = 0;
  Nanos last_result_ = 0;
  uint32_t op_id_ = 0;
  wire::Op op_ = wire::Op::kSum;
  bool is_running_ = false;
};

}  // namespace sluice::reducer
