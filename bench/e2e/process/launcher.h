// Launches one job on this machine: first the reducers, unless running reducers are given, then the workers.
// A worker is this program with the arguments of the launcher and a rank, so it is equivalent to a worker
// that a user starts on another host.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/pool/local_pool.h"
#include "core/units.h"

namespace sluice::bench {

struct LaunchOptions {
  std::vector<std::string> arguments;  // command line of this program
  uint32_t workers = 1;
  // List of running reducers; empty: start `pool`. With "@FILE" the launcher forwards SIGHUP to the workers,
  // which read the file again.
  std::string connect;
  LocalPoolOptions pool;
  std::string session;  // 32 hex digits; empty: random
  Nanos deadline = 0;   // time limit of the run; 0: none
  bool star = false;    // also starts a bare TCP star (star_server.h); workers receive its address in --star
  // Forwards SIGINT and SIGTERM to the workers, which end the job in an orderly way; a second signal ends all
  // processes.
  bool stops_gracefully = false;
};

// Blocks until all processes have ended. The first failure is logged and ends all processes. Returns the exit
// code: 0, that of a failed worker, or 128 + the signal that ended the run.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace sluice::bench
