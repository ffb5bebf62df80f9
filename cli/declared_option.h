// What is known of an option once it is declared: enough for the command line, the environment, a file of
// settings, --help, --print-config and the sample file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace sluice::cli {

using Values = std::vector<std::string>;  // one, but of a list

// Later ones go before earlier ones.
enum class Origin : uint8_t { kDefault, kFile, kEnvironment, kCommandLine };

// What a file has to hold for it. kPairs: a list of NAME=N, or a table of them.
enum class OptionKind : uint8_t { kText, kNumber, kFraction, kSize, kDuration, kFlag, kList, kPairs };

struct DeclaredOption {
  CLI::Option* option = nullptr;
  std::string name;      // "--foo-bar"
  std::string variable;  // "SLUICE_FOO_BAR"; empty: the command line alone
  std::string key;       // "foo_bar"; empty: in no file
  std::string table;     // "capacity": under which heading it stands
  std::string help;
  std::string range;  // "1 to 100"; empty: any value
  OptionKind kind = OptionKind::kText;
  bool reloadable = false;  // SIGHUP reads it again
  bool required = false;
  // Takes values and returns an empty string, or says what is wrong with them and changes nothing.
  std::function<std::string(const Values&)> assign;
  std::function<Values()> current;
  Values at_first;  // the default
  Origin origin = Origin::kDefault;
  std::string from;  // "SLUICE_FOO_BAR", "reducer.toml:12:9"
};

class Configuration;

// What a command that may be configured by a file is told of it (OptionSet::by_file).
struct ByFile {
  std::string path;
  std::string print;  // of --print-config: "true", "sample"; empty: don't
  bool check = false;
  Configuration* configuration = nullptr;  // from when the command runs
};

// Of one command.
struct DeclaredOptions {
  CLI::App* app = nullptr;
  std::deque<DeclaredOption> all;  // options point to each other's neighbours: none may move
  ByFile* by_file = nullptr;
};

}  // namespace sluice::cli
