// The worker's side of the vote that commits a session: sending the vote, waiting for the arbiter's
// verdict, and reporting a failure to the other ranks (protocol.md section 5).
#pragma once

#include <cstdint>
#include <span>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/join/handshake.h"
#include "gpu_client/engine/join/reducer_reservation.h"

namespace sluice::engine {

// Waits for the verdict after a yes. Returns the incarnation of the committed session, or why it was not
// committed. Any reducer may send the reason, so all control connections are read. When the arbiter's
// connection breaks, the verdict is queried over a new one, because other ranks may have received a commit.
[[nodiscard]] Result<uint64_t> await_verdict(std::span<ReducerReservation> reservations,
                                             const config::Endpoint& arbiter, const Identity& identity,
                                             const Deadline& deadline);

// Returns the REFUSED or ABORT that a reducer has sent unasked, or the loss of a control connection, as an
// error. Used after a failed step, because this error names the cause better than the step's own error. Waits
// for `late` for the arbiter's: it refuses all ranks at once, and the first of them leaves, closes its
// connections and ends its co-located reducer. The others may see that sooner than their own refusal.
[[nodiscard]] Result<void> check_for_refusal(std::span<ReducerReservation> reservations,
                                             Nanos late = 300 * kMillisecond);

// Votes no: tells the arbiter, which tells the other ranks. Waits up to 1 s for the arbiter's answer, because
// closing the connection could overtake the vote.
void vote_no(ReducerReservation& arbiter, Rank rank, const Error& cause);

// Sends ABORT to all reducers after a yes that did not lead to a session.
void abort_all(std::span<ReducerReservation> reservations, Rank rank, const Error& cause);

}  // namespace sluice::engine
