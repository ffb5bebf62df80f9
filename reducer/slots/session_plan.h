// Struct SessionPlan holds what the ranks agreed on at join, for the lanes. Constant after the join.
#pragma once

#include <cstdint>

#include "wire/sum_order.h"

namespace sluice::reducer {

struct SessionPlan {
  uint32_t handle = 0;      // identifies the session in frame headers
  uint32_t ranks = 0;       // n
  uint32_t slots = 0;       // W
  uint32_t slot_bytes = 0;  // largest payload
  uint16_t view_version = 0;
  uint32_t view_hash = 0;  // low half, as frame headers carry it
  bool payload_crc = true;
  bool fault_tolerant = false;  // connections are resumed and views change (protocol.md section 11)
  wire::SumOrder order = wire::SumOrder::kTree;
  bool health = false;  // contributions are scanned (reducer/lane/health_monitor.h)
  uint32_t weight = 1;  // of the session's tenant, in the order of a lane's folds
};

}  // namespace sluice::reducer
