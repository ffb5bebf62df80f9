#pragma once

#include <cstdint>
#include <vector>

#include "core/units.h"

namespace sluice::transport::fault {

enum class FaultKind : uint8_t {
  kDrop,     // closes the connection in order after the previous frame
  kReset,    // breaks the connection; frames in flight are lost
  kDelay,    // delays this frame and all later ones by `duration`
  kCorrupt,  // flips one bit of a copy of the payload; the seed selects the bit
  kStall,    // the endpoint receives and sends nothing for `duration`
};

// With probability 0, the rule applies to put number `nth` of wrapped endpoint number `endpoint`; both count
// from 0, endpoints in the order of wrap(). Otherwise it applies to each put with that probability.
struct FaultRule {
  FaultKind kind = FaultKind::kDelay;
  uint32_t endpoint = 0;
  uint64_t nth = 0;
  double probability = 0;
  Nanos duration = 0;
};

struct FaultPlan {
  uint64_t seed = 1;
  std::vector<FaultRule> rules;
};

struct FaultCounters {
  uint64_t drops = 0, resets = 0, delays = 0, corruptions = 0, stalls = 0;
};

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
