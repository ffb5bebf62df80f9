// Options as every subcommand declares them: command line before environment before default. Option --foo-bar
// is variable SLUICE_FOO_BAR; the last of several on the command line counts, so that a launcher can append
// to what the user gave.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/sizes.h"
#include "core/units.h"

namespace sluice::cli {

class OptionSet {
 public:
  // `app` outlives the set; targets outlive the parse. One set for each app.
  explicit OptionSet(CLI::App& app);

  // Heading that the options added from here on stand under in --help.
  OptionSet& group(const std::string& heading);

  // `names` as CLI11 takes them: "-b,--minbytes". The first long one names the variable.
  CLI::Option* text(const std::string& names, std::string& target, const std::string& type,
                    const std::string& help);
  // "a,b,c".
  CLI::Option* list(const std::string& names, std::vector<std::string>& target, const std::string& help);
  // "64K", "1G": bytes, powers of 1024.
  CLI::Option* size(const std::string& names, uint64_t& target, const std::string& help);
  // "500ms", "10s".
  CLI::Option* duration(const std::string& names, Nanos& target, const std::string& help);
  CLI::Option* flag(const std::string& names, bool& target, const std::string& help);

  template <typename T>
  CLI::Option* number(const std::string& names, T& target, const std::string& help) {
    return finish(app_.add_option(names, target, help)->capture_default_str(), names);
  }

 private:
  CLI::Option* finish(CLI::Option* option, const std::string& names);

  using Variables = std::vector<std::pair<CLI::Option*, std::string>>;

  CLI::App& app_;
  std::shared_ptr<Variables> variables_;
  std::string heading_;
};

// "SLUICE_FOO_BAR" of "-f,--foo-bar".
[[nodiscard]] std::string variable_of(const std::string& names);

}  // namespace sluice::cli
