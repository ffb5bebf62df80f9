#pragma once

#include <cstdint>

#include "transport/fault/fault_context.h"

namespace sluice::transport::fault {

// The faults of one put.
struct PutFaults {
  bool drop = false;
  bool reset = false;
  bool corrupt = false;
  uint64_t corrupt_bit = 0;  // modulo the bits of the payload
  Nanos delay = 0;
  Nanos stall = 0;
  [[nodiscard]] bool delays_frame() const noexcept { return drop || reset || delay > 0 || stall > 0; }
};

// FaultSchedule decides the faults of each put of one endpoint. The result depends only on the plan, the
// number of the endpoint and the number of the put, never on timing or other endpoints.
class FaultSchedule {
 public:
  // `plan` must outlive the schedule.
  FaultSchedule(const FaultPlan& plan, uint32_t endpoint) noexcept;
  // Returns the faults of the next put and counts them. A put without payload has no corruption.
  [[nodiscard]] PutFaults next(bool has_payload, FaultCounters& counters) noexcept;

 private:
  [[nodiscard]] uint64_t random() noexcept;

  const FaultPlan& plan_;
  const uint32_t endpoint_;
  uint64_t puts_ = 0;
  uint64_t state_;
};

}  // namespace sluice::transport::fault
