// Runs the server of a bare TCP star in one thread, the lower bound in comparisons with a reducer. It serves
// one group of workers after another. The workers state their number and the chunk size in the handshake.
#pragma once

#include <cstdint>
#include <string>

#include "bench/e2e/process/process_group.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct StarServerOptions {
  std::string host = "127.0.0.1";  // empty: all addresses
  uint16_t port = 0;               // 0: chosen by the OS
  Nanos spin = 20 * kMicrosecond;  // the default of a reducer
  std::string port_file;           // empty: none
};

// Does not return; a signal ends the process. Throws Failure when the socket cannot listen; the code is
// kExitTryAgain when the port is in use.
[[noreturn]] void run_star_server(const StarServerOptions& options);

struct LocalStar {
  size_t child = 0;  // index in the ProcessGroup; serves until it is stopped
  uint16_t port = 0;
};

// Starts the server on loopback for one run, like LocalPool starts reducers. Returns when it listens. `spin`:
// see StarServerOptions::spin.
[[nodiscard]] Result<LocalStar> start_star(ProcessGroup& processes, Nanos spin);

}  // namespace sluice::bench
