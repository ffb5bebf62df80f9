// Estimates how the clocks of the hosts differ, from messages that were recorded by their sender and by their
// receiver: a message is never received before it was sent. So messages in one direction bound the
// difference of two clocks from one side, and those in the other direction from the other side.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/blackbox/blackbox_file.h"

namespace sluice::cli {

// A monotonic clock that one or several processes share: that of a host since its start.
struct HostClock {
  enum class State : uint8_t {
    kReference,
    kAgrees,     // with the reference, within `uncertainty`
    kCorrected,  // by `correction`, which is exact to `uncertainty`
    kAssumed,    // equal to the reference: no message tells
  };
  std::string host;
  Nanos to_wall = 0;  // wall time = monotonic time + to_wall + correction
  Nanos correction = 0;
  Nanos uncertainty = 0;
  State state = State::kAssumed;
};

struct ClockOffsets {
  std::vector<HostClock> clocks;  // the first is the reference
  std::vector<size_t> clock_of;   // by process: index in `clocks`

  // The time of an event of this process on the wall clock of the reference.
  [[nodiscard]] Nanos wall_time(size_t process, Nanos at) const {
    const HostClock& clock = clocks[clock_of[process]];
    return at + clock.to_wall + clock.correction;
  }
};

// `known_as`: the own id of a reducer by the id that ranks have for it.
[[nodiscard]] ClockOffsets estimate_clocks(const std::vector<RecordedProcess>& processes,
                                           const std::map<uint64_t, uint64_t>& known_as);

}  // namespace sluice::cli
