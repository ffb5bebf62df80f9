// Defines peer_main(), the main() of the drivers.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "bench/peers/peer.h"

namespace sluice::bench {

// `app` has the options that the library needs to start. `join` starts the library with the other ranks.
// Returns the exit code: 2 for wrong sums (on rank 0), 64 for an invalid option, 1 for any other failure.
// Errors go to stderr.
[[nodiscard]] int peer_main(int argc, char** argv, CLI::App& app,
                            const std::function<std::unique_ptr<Peer>()>& join);

}  // namespace sluice::bench
