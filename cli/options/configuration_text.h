// Formats options as a configuration file (the effective values, or a commented sample) or as a Markdown
// table.
#pragma once

#include <string>

#include "cli/options/configuration.h"

namespace sluice::cli {

// Returns every option with its value and, as a comment, its origin. Configuration can read the result.
[[nodiscard]] std::string effective_values_text(const Configuration& configuration);

// Returns every option with its description, its range and its default, all as comments: the initial
// configuration file of an installation. The text is the same on every machine.
[[nodiscard]] std::string sample_file_text(const Configuration& configuration);

// Returns a Markdown table of every option with its default and description: the one in
// docs/reference/configuration.md. The text is the same on every machine.
[[nodiscard]] std::string markdown_table_text(const Configuration& configuration);

// Prints one of them to stdout and returns true when --print-config was given.
[[nodiscard]] bool print_if_requested(const Configuration& configuration);

}  // namespace sluice::cli
