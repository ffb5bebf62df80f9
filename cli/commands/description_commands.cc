// Implements `sluice completion` and `sluice man`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/description/generators.h"
#include "cli/options/option_set.h"
#include "cli/process/version.h"

namespace sluice::cli {
namespace {

using bench::Failure;

int run_completion(const CLI::App& program, const std::string& shell) {
  const CommandDescription tree = command_tree(program);
  bench::print_result(shell == "bash"  ? bash_completion(tree)
                      : shell == "zsh" ? zsh_completion(tree)
                                       : fish_completion(tree));
  return bench::kExitOk;
}

struct ManFlags {
  std::vector<std::string> command;
  std::string out;
};

void write_pages(const CommandDescription& program, const CommandDescription& command,
                 const std::string& folder, const std::string& version) {
  const std::string path = fmt::format("{}/{}.1", folder, command.joined('-'));
  bench::write_result_file(path, man_page(program, command, version));
  for (const CommandDescription& subcommand : command.commands)
    write_pages(program, subcommand, folder, version);
}

int run_man(const CLI::App& program, const ManFlags& flags) {
  const CommandDescription tree = command_tree(program);
  std::string version = version_text();
  version.resize(std::min(version.find('\n'), version.size()));
  if (!flags.out.empty()) {
    write_pages(tree, tree, flags.out, version);
    return bench::kExitOk;
  }
  const CommandDescription* command = &tree;
  for (const std::string& name : flags.command) {
    const auto found = std::find_if(command->commands.begin(), command->commands.end(),
                                    [&name](const CommandDescription& c) { return c.name() == name; });
    if (found == command->commands.end())
      throw Failure(bench::kExitUsage, fmt::format("{} has no command \"{}\"", command->joined(' '), name));
    command = &*found;
  }
  bench::print_result(man_page(tree, *command, version));
  return bench::kExitOk;
}

}  // namespace

void add_description_commands(CLI::App& program, Command& chosen) {
  CLI::App* completion = program.add_subcommand("completion", "print a completion script for a shell");
  const std::string name = program.get_name();
  completion->footer(
      fmt::format("  source <({0} completion bash)          # or zsh, for the current shell\n"
                  "  {0} completion fish | source",
                  name));
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "shell to generate the script for")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  run_when_selected(*completion, chosen, shell,
                    [&program](const std::string& s) { return run_completion(program, s); });

  CLI::App* man =
      program.add_subcommand("man", "print the manual page of this program or of one of its commands");
  man->footer(fmt::format("  {} man | man -l -", name));
  auto flags = std::make_shared<ManFlags>();
  man->add_option("command", flags->command, "command to describe; default: the program")
      ->type_name("COMMAND");
  OptionSet set(*man);
  set.text("--out", flags->out, "FOLDER", "write the pages of all commands to this folder");
  run_when_selected(*man, chosen, flags, [&program](const ManFlags& f) { return run_man(program, f); });
}

}  // namespace sluice::cli
