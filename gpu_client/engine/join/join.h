// join_session() makes this rank part of a session. It handshakes with every reducer, computes the view,
// makes the reservations, attaches the lane connections, votes, waits for the verdict and commits
// (protocol.md section 5). The call blocks. On an error every connection is closed and, as far as possible,
// the other ranks have been told the reason.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/identity.h"
#include "gpu_client/engine/join/membership.h"

namespace sluice::engine {

// How long after the join timeout a rank that voted yes still waits for the verdict (protocol.md section 5).
inline constexpr Nanos kVerdictGrace = 5 * kSecond;

struct JoinOptions {
  std::vector<config::Endpoint> reducers;  // not empty; the order is part of the view
  std::string pool_file;  // file with the list of reducers, watched for changes; empty: the list is fixed
  Identity identity;
  uint32_t lanes = 0;  // lane connections per reducer, at most as many as it offers; 0: all
  uint32_t window_bytes = 2 * kMiB;
  uint32_t slot_bytes = 0;  // 0: wire::slot_bytes_for(ranks), less if the window or a reducer requires it
  Nanos connect_timeout = 10 * kSecond;  // to reach all reducers, and for each lane connection
  Nanos join_timeout = 60 * kSecond;     // for all ranks to join
  Nanos resume_timeout = 2 * kSecond;    // to reopen a connection before its reducer counts as lost
};

[[nodiscard]] Result<Membership> join_session(const JoinOptions& options);

}  // namespace sluice::engine
