// A worker of `sluice bench star`: holds a connection to the bare star and a session at the reducer, and does
// with either what its launcher says over stdin. One letter a command, one line an answer.
#pragma once

#include <cstdint>

#include "bench/e2e/worker_session.h"

namespace sluice::bench {

struct StarWorkerOptions {
  uint16_t star_port = 0;
  uint64_t bytes = 0;  // per round
  uint64_t chunk_bytes = 0;
  uint64_t window_bytes = 0;
};

inline constexpr char kStarRound = 's';     // exchange with the star; answers "done"
inline constexpr char kReducerRound = 'r';  // allreduce of f32 by sum; answers "done"
inline constexpr char kCheckRound = 'c';    // answers the number of wrong elements of the last allreduce

// Says "ready" once both are there; returns when stdin ends.
[[nodiscard]] int run_star_worker(const StarWorkerOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
