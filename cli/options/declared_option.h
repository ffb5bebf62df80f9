// Describes a declared option: everything that the command line, the environment, a configuration file,
// --help, --print-config and the sample file need.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace sluice::cli {

using Values = std::vector<std::string>;  // one element, except for lists

// In ascending precedence.
enum class Origin : uint8_t { kDefault, kFile, kEnvironment, kCommandLine };

// The type of an option's value in a configuration file. kPairs: an array of NAME=N, or a table.
enum class OptionKind : uint8_t { kText, kNumber, kFraction, kSize, kDuration, kFlag, kList, kPairs };

struct DeclaredOption {
  CLI::Option* option = nullptr;
  std::string name;      // "--foo-bar"
  std::string variable;  // "SLUICE_FOO_BAR"; empty: only on the command line
  std::string key;       // "foo_bar"; empty: not in a configuration file
  std::string table;     // "capacity": the table of the key
  std::string help;
  std::string range;  // "1 to 100"; empty: any value
  OptionKind kind = OptionKind::kText;
  bool reloadable = false;  // SIGHUP reloads it
  bool required = false;
  bool is_output_file = false;  // that the command writes at its end
  // Sets the option and returns an empty string, or returns the error and changes nothing.
  std::function<std::string(const Values&)> assign;
  std::function<Values()> current;
  Values default_values;
  Origin origin = Origin::kDefault;
  std::string source;  // "SLUICE_FOO_BAR", "reducer.toml:12:9"
};

class Configuration;

// The options of a command that accepts a configuration file (OptionSet::add_config_file_options).
struct ConfigFileOptions {
  std::string path;
  std::string print;  // of --print-config: "true", "sample", "markdown"; empty: not requested
  bool check = false;
  Configuration* configuration = nullptr;  // set before the command runs
};

// The options of one command.
struct DeclaredOptions {
  CLI::App* app = nullptr;
  std::deque<DeclaredOption> all;  // a deque, because callbacks hold references to the elements
  ConfigFileOptions* config_file = nullptr;
};

}  // namespace sluice::cli
