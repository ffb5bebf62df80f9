// The floor that a reducer is measured against: a bare TCP star (star_group.h), one thread. It serves one
// group of workers after another; how many workers and which chunks, the workers say themselves.
#pragma once

#include <cstdint>
#include <string>

#include "core/units.h"

namespace sluice::bench {

struct StarServerOptions {
  std::string host = "127.0.0.1";  // empty: all addresses
  uint16_t port = 0;               // 0: chosen by the OS
  Nanos spin = 20 * kMicrosecond;  // a reducer's default
  std::string port_file;           // empty: none
};

// Returns never: a signal ends the process. Throws Failure when it can't listen (kExitTryAgain: the port is
// in use).
[[noreturn]] void run_star_server(const StarServerOptions& options);

}  // namespace sluice::bench
