// Struct SessionTotals is what the reducer's status tells of all its sessions together.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/units.h"

namespace sluice::reducer {

class Session;

struct SessionTotals {
  std::map<std::string, uint64_t> served_bytes;  // by tenant, of the sessions that are not freed
  uint64_t joining = 0;                          // sessions
  uint64_t waiting = 0;                          // sessions that have waited for a rank for a second and more
  Nanos longest_wait = 0;
  uint64_t stalled_ranks = 0;  // their lane connections do not carry what is sent on them
  Nanos longest_stall = 0;

  void add(const Session& session, Nanos now);
  // A session that was added is freed: from now on its tenant counts its bytes.
  void remove(const Session& session);
};

}  // namespace sluice::reducer
