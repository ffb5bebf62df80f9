// The way into a session, on the caller's thread: greet every reducer, agree on the view, join, attach the
// lane connections, vote, wait for the verdict, commit. PROTOCOL.md section 5. All or nothing: on an error
// every connection is closed and, as far as that is possible, the other ranks have been told the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/membership.h"

namespace sluice::engine {

// How much longer than the join deadline a rank that voted yes waits for the verdict (PROTOCOL.md section 5).
inline constexpr Nanos kVerdictGrace = 5 * kSecond;

struct JoinOptions {
  std::vector<config::Endpoint> reducers;  // not empty; the order is part of the view
  std::string pool_file;  // where they stand, to be read again; empty: they don't change by themselves
  Identity who;
  uint32_t lanes = 0;  // per reducer, at most what it offers; 0: what it offers
  uint32_t window_bytes = 2 * kMiB;
  uint32_t slot_bytes = 0;  // 0: wire::slot_bytes_for(ranks), or less where window or reducers allow less
  Nanos connect_timeout = 10 * kSecond;  // to reach all reducers, and for each lane connection
  Nanos join_timeout = 60 * kSecond;     // for all ranks to arrive
  Nanos resume_timeout = 2 * kSecond;    // for a broken connection, until its reducer counts as lost
};

[[nodiscard]] Result<Membership> join_session(const JoinOptions& options);

}  // namespace sluice::engine
