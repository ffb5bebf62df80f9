// Gives the sessions of a worker process a reducer in that process
// (docs/design/adr/0019-co-located-reducers.md).
#pragma once

#include "colocated/local_reducer.h"

namespace sluice::colocated {

struct HostOptions {
  bool payload_crc = true;  // results carry a checksum
  // Bytes for the sessions of all reducers of this process; 0: an eighth of the machine's memory, because a
  // machine has up to eight workers.
  uint64_t memory_limit = 0;
};

// The factory starts a reducer for its first session, and gives later sessions of the same job, token and
// address a place at that reducer. The reducer serves these sessions only. It has one control thread and one
// lane thread, which end with the last place. A child of fork() has none of its parent's reducers, and starts
// its own for its own sessions. Errors of the factory: kMemoryLimit for a session whose memory exceeds the
// limit; kInvalidArgument, kAddressInUse, kSystem, kUnsupported. Any thread.
[[nodiscard]] LocalReducerFactory local_reducer_factory(const HostOptions& options);

}  // namespace sluice::colocated
