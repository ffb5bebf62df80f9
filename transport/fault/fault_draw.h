// Which faults hit which put: a function of the plan, the endpoint's number and the number of the put, so
// that timing and other endpoints never change it.
#pragma once

#include <cstdint>

#include "transport/fault/fault_context.h"

namespace sluice::transport::fault {

struct Hit {
  bool drop = false;
  bool reset = false;
  bool corrupt = false;
  uint64_t corrupt_bit = 0;  // modulo the bits of the payload
  Nanos delay = 0;
  Nanos stall = 0;
  [[nodiscard]] bool holds_back() const noexcept { return drop || reset || delay > 0 || stall > 0; }
};

class FaultDraw {
 public:
  // `plan` must outlive it.
  FaultDraw(const FaultPlan& plan, uint32_t endpoint) noexcept;
  // What happens to the next put. Counts what it returns, a corruption only when there is payload to corrupt.
  [[nodiscard]] Hit next(bool has_payload, FaultCounters& counters) noexcept;

 private:
  [[nodiscard]] uint64_t random() noexcept;

  const FaultPlan& plan_;
  const uint32_t endpoint_;
  uint64_t puts_ = 0;
  uint64_t state_;
};

}  // namespace sluice::transport::fault
