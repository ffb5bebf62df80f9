// Runs one job on this machine: reducers (unless some are named), then the workers, each of them this program
// again with the launcher's own arguments and its rank. A worker started here and one started by hand on
// another host are the same thing.
#pragma once

#include <string>
#include <vector>

#include "bench/e2e/local_pool.h"
#include "core/units.h"

namespace sluice::bench {

struct LaunchOptions {
  std::vector<std::string> arguments;  // of this program, as given by the user
  uint32_t workers = 1;
  // List of running reducers; empty: start `pool`. Of "@FILE" a SIGHUP is passed on to the workers, who read
  // it again.
  std::string connect;
  LocalPoolOptions pool;
  std::string session;  // 32 hex digits; empty: random
  Nanos deadline = 0;   // for the whole run from now; 0: none
  bool star = false;    // start a bare star too (star_server.h); workers are told by --star
  // SIGINT and SIGTERM are passed on to the workers, who end the job in order; a second one ends everybody.
  bool workers_stop = false;
};

// Blocks until all have ended. The first failure ends everybody; what it was goes to the log. Returns the
// exit code: 0, that of a worker that failed, or 128 + the signal that ended the run.
[[nodiscard]] int launch(const LaunchOptions& options);

}  // namespace sluice::bench
