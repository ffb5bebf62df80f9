// Runs the server of a bare TCP star (star_group.h) in one thread, the lower bound in comparisons with a
// reducer. It serves one group of workers after another. The workers state their number and the chunk size in
// the handshake.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace sluice::bench
