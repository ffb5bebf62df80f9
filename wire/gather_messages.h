// Messages with which the ranks of a session exchange data before they join (protocol.md section 5).
#pragma once

#include <cstdint>
#include <vector>

#include "wire/frame.h"
#include "wire/message_limits.h"

namespace sluice::wire {

// A rank's data. The reducer does not interpret it; it answers when the data of all ranks is there.
struct Gather {
  static constexpr FrameType kType = FrameType::kGather;
  static constexpr bool kMayGrow = true;
  uint8_t round = 0;          // a connection serves several rounds, one after the other
  uint32_t timeout_ms = 0;    // for all ranks, from the first rank's GATHER
  std::vector<uint8_t> data;  // at most kMaxGatherData
  Mac mac{};
  static void visit(auto& m, auto& v) {
    v(m.round), v(m.timeout_ms), v.list(m.data, kMaxGatherData), v(m.mac);
  }
};

// The data of `sizes.size()` consecutive ranks. A reducer sends as many of these messages as all ranks need,
// in the order of ranks.
struct Gathered {
  static constexpr FrameType kType = FrameType::kGathered;
  static constexpr bool kMayGrow = true;
  uint8_t round = 0;
  uint32_t first_rank = 0;
  std::vector<uint16_t> sizes;  // bytes of each rank
  std::vector<uint8_t> data;    // of these ranks, one after the other
  static void visit(auto& m, auto& v) {
    v(m.round), v(m.first_rank), v.list(m.sizes, kMaxGatheredRanks), v.list(m.data, kMaxGatheredBytes);
  }
};

}  // namespace sluice::wire
