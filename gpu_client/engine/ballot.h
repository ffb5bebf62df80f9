// The worker's side of the vote: waiting for the verdict, and telling everybody when this rank can't go on.
#pragma once

#include <span>

#include "config/endpoints.h"
#include "core/result.h"
#include "core/units.h"
#include "gpu_client/engine/greeting.h"
#include "gpu_client/engine/membership.h"

namespace sluice::engine {

// After a yes: the incarnation of the committed session, or why there is none. Watches every control
// connection, since the reason may come from any reducer. When the arbiter's breaks, asks for the verdict
// over a new one, since other ranks may have been told to go.
[[nodiscard]] Result<uint64_t> await_verdict(std::span<Seat> seats, const config::Endpoint& arbiter,
                                             const Identity& who, Nanos deadline);

// What a reducer has said on its control connection without being asked, if anything: REFUSED, ABORT, or the
// end of the connection. Better words for a failure than what the failing step saw.
[[nodiscard]] Result<void> unasked_words(std::span<Seat> seats);

// Instead of a yes: tells the arbiter, and through it the other ranks. Waits a moment, so that closing our
// end does not overtake it.
void vote_no(Seat& arbiter, Rank rank, const Error& why);

// After a yes that did not lead to a session.
void abort_all(std::span<Seat> seats, Rank rank, const Error& why);

}  // namespace sluice::engine
