// LaneWork is what a lane shares with its sessions: its clock, and which of them have something to do. A turn
// looks at these only, so sessions without work cost the others nothing. Lane thread only.
#pragma once

#include <vector>

#include "core/units.h"

namespace sluice::reducer {

class LaneSession;

struct LaneWork {
  Nanos now = 0;
  // Each has the capacity of all sessions of the lane, and holds a session once: sessions add themselves, and
  // the lane removes them when it finds nothing to do.
  std::vector<LaneSession*> folds;   // that have fold tasks
  std::vector<LaneSession*> events;  // that have events to report, or a connection to attach
  // By place: when the session's next tick is due. Side by side, because a pass reads all of them.
  std::vector<Nanos> tick_due;
};

}  // namespace sluice::reducer
