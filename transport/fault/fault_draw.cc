#include "transport/fault/fault_draw.h"

#include <algorithm>

namespace sluice::transport::fault {

FaultDraw::FaultDraw(const FaultPlan& plan, uint32_t endpoint) noexcept
    : plan_(plan), endpoint_(endpoint), state_(plan.seed) {
  // Neighbouring seeds and endpoints must not give shifted copies of one sequence.
  state_ = random() ^ endpoint;
  state_ = random();
}

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers on every platform, unlike the distributions of the
// standard library.
uint64_t FaultDraw::random() noexcept {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Hit FaultDraw::next(bool has_payload, FaultCounters& counters) noexcept {
  Hit hit;
  const uint64_t put = puts_++;
  for (const FaultRule& rule : plan_.rules) {
    const bool hits = rule.probability > 0 ? static_cast<double>(random() >> 11) * 0x1p-53 < rule.probability
                                           : rule.endpoint == endpoint_ && rule.nth == put;
    if (!hits) continue;
    switch (rule.kind) {
      case FaultKind::kDrop:
        hit.drop = true;
        ++counters.drops;
        break;
      case FaultKind::kReset:
        hit.reset = true;
        ++counters.resets;
        break;
      case FaultKind::kDelay:
        hit.delay = std::max(hit.delay, rule.duration);
        ++counters.delays;
        break;
      case FaultKind::kCorrupt:
        if (!has_payload) break;
        hit.corrupt = true;
        hit.corrupt_bit = random();
        ++counters.corruptions;
        break;
      case FaultKind::kStall:
        hit.stall = std::max(hit.stall, rule.duration);
        ++counters.stalls;
        break;
    }
  }
  return hit;
}

}  // namespace sluice::transport::fault
