// A program's commands and options as plain values, read from what it declared to CLI11: what its man pages
// and its shells' completions are written from, so that neither forgets an option.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::cli {

// What a shell may offer after an option or in place of a positional.
enum class ValueKind : uint8_t { kNone, kAnything, kChoices, kFile, kFolder };

struct OptionWords {
  std::vector<std::string> names;  // "-b", "--minbytes"; of a positional its one name without dashes
  std::string value;               // "HOST:PORT"; empty: a flag
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;  // with kChoices; letters, digits and "._+-" only
  std::string help;
  std::string heading;        // it stands under in --help
  std::string default_value;  // empty: none
  bool required = false;
};

struct CommandWords {
  std::vector<std::string> path;  // {"sluice", "bench", "allreduce"}; the first is the program
  std::string help;
  std::string footer;
  std::vector<OptionWords> options;
  std::vector<OptionWords> positionals;
  std::vector<CommandWords> commands;

  [[nodiscard]] const std::string& name() const { return path.back(); }
  // "sluice bench allreduce"
  [[nodiscard]] std::string joined(char between) const;
  // The words that lead here from the program, each with a slash: "bench/allreduce/"; of the program "".
  [[nodiscard]] std::string way() const;
};

// All that --help would show, at every depth. `program` is declared to its end.
[[nodiscard]] CommandWords command_tree(const CLI::App& program);

// The first sentence or clause of a help text, on one line: what fits beside a name in a list.
[[nodiscard]] std::string summary_of(const std::string& help);

}  // namespace sluice::cli
