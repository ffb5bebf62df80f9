// Generates man pages and shell completion scripts from a program's description.
#pragma once

#include <string>

#include "cli/description/command_tree.h"

namespace sluice::cli {

// Return complete scripts, to be installed where the shell looks for completions or read with `source`. They
// contain the options and do not run the program.
[[nodiscard]] std::string bash_completion(const CommandDescription& program);
[[nodiscard]] std::string zsh_completion(const CommandDescription& program);
[[nodiscard]] std::string fish_completion(const CommandDescription& program);

// Returns a page of section 1 in man(7) format for one command. `version` is "sluice 0.1.0".
[[nodiscard]] std::string man_page(const CommandDescription& program, const CommandDescription& command,
                                   const std::string& version);

}  // namespace sluice::cli
