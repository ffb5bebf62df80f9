// Texts about a program that others read: man pages and scripts that complete its command line in a shell.
#pragma once

#include <string>

#include "cli/description/command_tree.h"

namespace sluice::cli {

// Scripts for the shell of that name, whole: to be put where the shell looks for them, or read by `source`.
// They know the options of this very program; none asks it again.
[[nodiscard]] std::string bash_completion(const CommandWords& program);
[[nodiscard]] std::string zsh_completion(const CommandWords& program);
[[nodiscard]] std::string fish_completion(const CommandWords& program);

// One page of section 1, in man(7): "sluice-bench-allreduce.1" is man_page(...) of that command.
// `version`: "sluice 0.1.0".
[[nodiscard]] std::string man_page(const CommandWords& program, const CommandWords& command,
                                   const std::string& version);

}  // namespace sluice::cli
