// How long a lane takes for its part of each operation of one session: from the first contribution to the
// last result, each by the time of the lane's turn. The lane's own.
#pragma once

#include <cstdint>

#include "core/units.h"
#include "reducer/lane/lane_counters.h"
#include "wire/dtype.h"

namespace sluice::reducer {

class OperationClock {
 public:
  // Results come in the order of their operations. Which is an operation's last here nobody says (its other
  // chunks are other lanes' and other reducers'), so an operation is counted when the next one has a result.
  void result_made(uint32_t op_id, wire::Op op, Nanos first_arrival, Nanos now,
                   LaneCounters& counters) noexcept {
    if (!under_way_ || op_id != op_id_) {
      ended(counters);
      under_way_ = true;
      op_id_ = op_id;
      op_ = op;
      began_ = first_arrival;
    }
    last_result_ = now;
  }

  // So was the session's last one.
  void ended(LaneCounters& counters) noexcept {
    if (!under_way_) return;
    under_way_ = false;
    const auto us = static_cast<uint64_t>((last_result_ - began_) / kMicrosecond);
    counters.operation_durations[static_cast<size_t>(op_)].add(us);
  }

 private:
  Nanos began_ = 0;
  Nanos last_result_ = 0;
  uint32_t op_id_ = 0;
  wire::Op op_ = wire::Op::kSum;
  bool under_way_ = false;
};

}  // namespace sluice::reducer
