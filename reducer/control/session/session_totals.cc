#include "reducer/control/session/session_totals.h"

#include <algorithm>

#include "reducer/control/session/session.h"
#include "transport/path_monitor.h"

namespace sluice::reducer {

void SessionTotals::add(const Session& session, Nanos now) {
  served_bytes[session.tenant()] += session.served_bytes();
  if (session.is_ending()) return;
  joining += session.is_joining() ? 1 : 0;
  if (const Nanos since = session.missing().since; since != 0) {
    waiting += now - since >= kSecond ? 1 : 0;
    longest_wait = std::max(longest_wait, now - since);
  }
  for (uint32_t rank = 0; rank < session.rank_count(); ++rank) {
    const Nanos stalled = session.path_of(rank).stalled;
    stalled_ranks += stalled >= transport::PathWatch::kStall ? 1 : 0;
    longest_stall = std::max(longest_stall, stalled);
  }
}

// It may have served more since it was added. Those bytes are missing until the next totals, so that no total
// is below an earlier one.
void SessionTotals::remove(const Session& session) {
  served_bytes[session.tenant()] -= session.served_bytes();
}

}  // namespace sluice::reducer
