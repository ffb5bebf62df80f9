// Division of a chunk's time into parts (TimeParts), and of an operation's time from those of its chunks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/units.h"
#include "gpu_client/engine/trace/operation_observer.h"

namespace sluice::engine {

// RESULT does not say how long the reducer added. The estimate assumes that one core of the reducer adds this
// many bytes of contributions in a second; `sluice bench reduce` measures the rate of a machine.
inline constexpr uint64_t kAddedBytesPerSecond = 20'000'000'000;

struct RoundTrip {
  Nanos duration = 0;         // from the put of the contribution to its result
  Nanos shortest = 0;         // seen on this reducer for chunks of about this size
  uint32_t bytes = 0;         // of the contribution
  uint32_t ranks = 0;         // that contribute
  Nanos lag = 0;              // from the first rank's contribution to the last one's, from RESULT
  bool this_is_last = false;  // this rank contributed last
};

// Divides a round trip. The time of waiting is the smaller of two upper bounds: the lag, which counts from
// the first rank's contribution and not from this one's, and the time above the shortest round trip. A rank
// that contributes last waits for nobody.
[[nodiscard]] inline TimeParts divide_round_trip(const RoundTrip& r) noexcept {
  TimeParts parts;
  const Nanos longer = std::max<Nanos>(r.duration - r.shortest, 0);
  parts.waiting = r.this_is_last ? 0 : std::clamp<Nanos>(r.lag, 0, longer);
  const Nanos rest = std::max<Nanos>(r.duration - parts.waiting, 0);
  const auto added = static_cast<double>(r.bytes) * r.ranks;
  const double seconds = added / static_cast<double>(kAddedBytesPerSecond);
  parts.adding = std::min(static_cast<Nanos>(seconds * static_cast<double>(kSecond)), rest);
  parts.on_wire = rest - parts.adding;
  return parts;
}

inline void add_parts(TimeParts& sum, const TimeParts& parts) noexcept {
  sum.in_window += parts.in_window;
  sum.waiting += parts.waiting;
  sum.adding += parts.adding;
  sum.on_wire += parts.on_wire;
}

// Scales the sums over an operation's chunks so that they add up to its duration. Without any chunk with a
// result, all of it was in the window.
[[nodiscard]] inline TimeParts scale_parts(const TimeParts& sums, Nanos duration) noexcept {
  const Nanos total = sums.in_window + sums.waiting + sums.adding + sums.on_wire;
  if (total <= 0) return {.in_window = duration};
  const double factor = static_cast<double>(duration) / static_cast<double>(total);
  const auto scaled = [factor](Nanos part) { return static_cast<Nanos>(static_cast<double>(part) * factor); };
  TimeParts parts{
      .in_window = scaled(sums.in_window), .waiting = scaled(sums.waiting), .adding = scaled(sums.adding)};
  parts.on_wire = duration - parts.in_window - parts.waiting - parts.adding;
  return parts;
}

}  // namespace sluice::engine
