// Reads a program's commands and options from CLI11 into plain structs. Man pages and shell completions are
// generated from them, so both contain every option.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::cli {

// What a shell completes after an option or for a positional argument.
enum class ValueKind : uint8_t { kNone, kAnything, kChoices, kFile, kFolder };

struct OptionDescription {
  std::vector<std::string> names;  // "-b", "--minbytes"; the name of a positional has no dashes
  std::string value;               // "HOST:PORT"; empty: a flag
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;  // for kChoices; only letters, digits and "._+-"
  std::string help;
  std::string heading;        // in --help
  std::string default_value;  // empty: none
  bool required = false;
};

struct CommandDescription {
  std::vector<std::string> path;  // {"sluice", "bench", "allreduce"}, beginning with the program
  std::string help;
  std::string footer;
  std::vector<OptionDescription> options;
  std::vector<OptionDescription> positionals;
  std::vector<CommandDescription> commands;

  [[nodiscard]] const std::string& name() const { return path.back(); }
  // Returns "sluice bench allreduce".
  [[nodiscard]] std::string joined(char separator) const;
  // Returns the path below the program, "bench/allreduce/", with which the completion scripts identify a
  // command; "" for the program.
  [[nodiscard]] std::string subcommand_path() const;
};

// Returns everything that --help shows, for all subcommands. Call when `program` is declared completely.
[[nodiscard]] CommandDescription command_tree(const CLI::App& program);

// Returns the first sentence or clause of a help text, for one line of a list.
[[nodiscard]] std::string summary_of(const std::string& help);

}  // namespace sluice::cli
