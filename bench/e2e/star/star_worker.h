// Runs a worker of `sluice bench star`. The worker has a connection to the bare star and a session with the
// reducer. It reads commands of one letter from stdin and answers each with a line on stdout.
#pragma once

#include <cstdint>

#include "bench/e2e/worker/worker_session.h"

namespace sluice::bench {

struct StarWorkerOptions {
  uint16_t star_port = 0;
  uint64_t bytes = 0;  // per round
  uint64_t chunk_bytes = 0;
  uint64_t window_bytes = 0;
};

inline constexpr char kStarRound = 's';     // exchanges with the star; answer: "done"
inline constexpr char kReducerRound = 'r';  // runs a sum allreduce of f32; answer: "done"
inline constexpr char kCheckRound = 'c';    // answer: the number of wrong elements of the last allreduce

// Prints "ready" when both connections are established. Returns at the end of stdin.
[[nodiscard]] int run_star_worker(const StarWorkerOptions& options, const WorkerOptions& worker);

}  // namespace sluice::bench
