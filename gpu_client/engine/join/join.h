// join_session() makes this rank part of a session. It handshakes with every reducer, computes the view,
// makes the reservations, attaches the lane connections, votes, waits for the verdict and commits
// (protocol.md section 5). The call blocks. On an error every connection is closed and, as far as possible,
// the other ranks have been told the reason.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/colocation.h"
#include "gpu_client/engine/join/reducer_reservation.h"
#include "wire/sum_order.h"
#include "wire/view.h"

namespace sluice::engine {

// How long after the join timeout a rank that voted yes still waits for the verdict (protocol.md section 5).
inline constexpr Nanos kVerdictGrace = 5 * kSecond;

// Ends a join before the timeouts of its options.
struct JoinLimit {
  Nanos time = INT64_MAX;
  int interrupt_fd = -1;            // readable: the join ends; -1: never
  std::function<Error()> reason{};  // then: why, for this rank and the others. Called on the joining thread
  // Of this rank, which then joins only as far as it needs to tell the others.
  std::optional<Error> own_failure{};
  // Closes descriptors of the session that the join does not need: a rank that has too few tells the others.
  std::function<void()> free_descriptors{};

  // The deadline of a call that may wait until `t`.
  [[nodiscard]] Deadline until(Nanos t) const noexcept { return {std::min(t, time), interrupt_fd}; }
};

struct JoinOptions {
  // Dedicated reducers; their order is part of the view. May be empty with co-located ones.
  std::vector<config::Endpoint> reducers;
  std::string pool_file;  // file with the list of reducers, watched for changes; empty: the list is fixed
  Identity identity;
  uint32_t lanes = 0;  // lane connections per reducer, at most as many as it offers; 0: all
  uint32_t window_bytes = 2 * kMiB;
  uint32_t slot_bytes = 0;  // 0: wire::slot_bytes_for(ranks), less if the window or a reducer requires it
  Nanos connect_timeout = 10 * kSecond;  // to reach all reducers, and for each lane connection
  Nanos join_timeout = 60 * kSecond;     // for all ranks to join
  Nanos resume_timeout = 2 * kSecond;    // to reopen a connection before its reducer counts as lost
  ColocationOptions colocation{};
};

// The result of a successful join: the agreed view and the connections to its reducers.
struct Membership {
  wire::View view;
  uint64_t view_hash = 0;
  uint64_t incarnation = 0;
  bool fault_tolerant = false;  // this rank and every reducer of the view support recovery from losses
  wire::SumOrder order = wire::SumOrder::kTree;  // of all reducers and ranks
  // Of the view, in this process; null: none. Outlives the connections, for which its end would wait.
  std::unique_ptr<colocated::LocalReducer> local_reducer;
  std::vector<ReducerReservation> reservations;  // in the order of the view; the first reducer is the arbiter
};

// Adds the list to an error about ranks that are late or differ: ranks with different lists meet at different
// reducers, or disagree there. No reducer sees both lists.
[[nodiscard]] Error add_own_list(Error error, const std::vector<config::Endpoint>& reducers);

[[nodiscard]] Result<Membership> join_session(const JoinOptions& options, const JoinLimit& limit = {});

// Joins a reducer that is added to a running session: makes the reservation and attaches all lane
// connections, without retries and without COMMIT. JOIN depends only on the session's first view and on this
// reducer, so all ranks send the same JOIN whatever proposals they have seen. `reducer_id` is from the
// membership history.
[[nodiscard]] Result<ReducerReservation> join_added_reducer(const JoinOptions& options,
                                                            const wire::View& first_view,
                                                            uint64_t incarnation,
                                                            const config::Endpoint& address,
                                                            uint64_t reducer_id, const Deadline& deadline);

}  // namespace sluice::engine
