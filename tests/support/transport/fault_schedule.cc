#include "tests/support/transport/fault_schedule.h"

#include <algorithm>

namespace sluice::transport::fault {

FaultSchedule::FaultSchedule(const FaultPlan& plan, uint32_t endpoint) noexcept
    : plan_(plan), endpoint_(endpoint), state_(plan.seed) {
  // Mixes seed and endpoint, so that neighboring values do not yield shifted copies of one sequence.
  state_ = random() ^ endpoint;
  state_ = random();
}

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every platform.
uint64_t FaultSchedule::random() noexcept {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

PutFaults FaultSchedule::next(bool has_payload, FaultCounters& counters) noexcept {
  PutFaults faults;
  const uint64_t put = puts_++;
  for (const FaultRule& rule : plan_.rules) {
    const bool applies = rule.probability > 0
                             ? static_cast<double>(random() >> 11) * 0x1p-53 < rule.probability
                             : rule.endpoint == endpoint_ && rule.nth == put;
    if (!applies) continue;
    switch (rule.kind) {
      case FaultKind::kDrop:
        faults.drop = true;
        ++counters.drops;
        break;
      case FaultKind::kReset:
        faults.reset = true;
        ++counters.resets;
        break;
      case FaultKind::kDelay:
        faults.delay = std::max(faults.delay, rule.duration);
        ++counters.delays;
        break;
      case FaultKind::kCorrupt:
        if (!has_payload) break;
        faults.corrupt = true;
        faults.corrupt_bit = random();
        ++counters.corruptions;
        break;
      case FaultKind::kStall:
        faults.stall = std::max(faults.stall, rule.duration);
        ++counters.stalls;
        break;
    }
  }
  return faults;
}

}  // namespace sluice::transport::fault
