// main() of a driver.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "bench/peers/peer.h"

namespace sluice::bench {

// `app` already has what the library needs to start; `join` starts it, with the other ranks. Returns the exit
// code: 2 for wrong sums, at rank 0; 64 for a bad option; 1 for any other failure, said on stderr.
[[nodiscard]] int peer_main(int argc, char** argv, CLI::App& app,
                            const std::function<std::unique_ptr<Peer>()>& join);

}  // namespace sluice::bench
