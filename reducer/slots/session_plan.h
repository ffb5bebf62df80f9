// What a session agreed on at join, as a lane needs it. Made by the conductor, never changed.
#pragma once

#include <cstdint>

namespace sluice::reducer {

struct SessionPlan {
  uint32_t handle = 0;      // the session's name in frame headers
  uint32_t ranks = 0;       // n
  uint32_t slots = 0;       // W
  uint32_t slot_bytes = 0;  // largest payload
  uint16_t view_version = 0;
  uint32_t view_hash = 0;  // low half
  bool payload_crc = true;
  bool survives = false;  // connections are resumed and views change (PROTOCOL.md section 11)
  uint32_t weight = 1;    // of its tenant, beside the other sessions of a lane
};

}  // namespace sluice::reducer
