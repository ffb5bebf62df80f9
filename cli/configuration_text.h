// Options as a file of settings: what counts now, or a commented sample.
#pragma once

#include <string>

#include "cli/configuration.h"

namespace sluice::cli {

// Every option with its value and, as a comment, where that comes from. A file that Configuration reads.
[[nodiscard]] std::string values_text(const Configuration& configuration);

// Every option with its text, its range and its default, all of them comments: what the file of an
// installation begins as. The same on every machine.
[[nodiscard]] std::string sample_text(const Configuration& configuration);

// Prints the one or the other on stdout where --print-config was given, and says so.
[[nodiscard]] bool print_if_asked(const Configuration& configuration);

}  // namespace sluice::cli
