// Class Configuration completes a command's options after the command line is parsed: first from environment
// variables, then from the file of --config. Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/declared_option.h"
#include "config/settings_file.h"
#include "core/result.h"

namespace sluice::cli {

class Configuration {
 public:
  // `sets` are the selected_options() after the parse.
  explicit Configuration(std::vector<std::shared_ptr<DeclaredOptions>> sets);

  // Changes the default of the option `name` ("--foo-bar"), which must exist. Call before load(). Throws
  // Failure(kExitConfig) for an invalid value.
  void set_default(std::string_view name, const std::string& value);

  // Applies variables, then the file, then checks required options. Throws Failure: kExitConfig with the
  // variable or with file:line:column, kExitUsage for a missing option.
  void load();

  // Null when the command accepts no configuration file.
  [[nodiscard]] const ConfigFileOptions* config_file() const noexcept { return config_file_; }
  [[nodiscard]] const std::vector<std::shared_ptr<DeclaredOptions>>& sets() const noexcept { return sets_; }

  // Call after load().
  [[nodiscard]] Origin origin_of(std::string_view name) const;
  // A line for each value that load() found and did not use: "SLUICE_LISTEN=*:7470 has precedence
  // over reducer.toml:3:10: listen = 10.0.0.1:7470".
  [[nodiscard]] const std::vector<std::string>& overrides() const noexcept { return overrides_; }

  struct Changes {
    std::vector<std::string> applied;          // "log_level info -> debug"
    std::vector<std::string> require_restart;  // changed keys that are not reloadable
  };
  // Reads the file again. When `accept` is called, the reloadable options have their new values; they are
  // restored when it returns an error. Errors name the position, and then nothing has changed.
  [[nodiscard]] Result<Changes> reload(const std::function<Result<void>()>& accept);

 private:
  struct FileValue {
    DeclaredOption* option;
    Values values;
    std::string position;
  };

  [[nodiscard]] DeclaredOption& find_option(std::string_view name) const;
  void apply_environment();
  void reject_unknown_variables() const;
  [[nodiscard]] Result<std::vector<FileValue>> read_file() const;
  [[nodiscard]] Result<void> match_setting(const config::Setting& setting, const std::string& table,
                                           std::vector<FileValue>& out) const;
  [[nodiscard]] Result<Values> setting_values(const DeclaredOption& option,
                                              const config::Setting& setting) const;
  [[nodiscard]] tl::unexpected<Error> unknown_key(const config::Setting& setting,
                                                  const std::string& table) const;
  [[nodiscard]] static Result<void> apply(DeclaredOption& option, const Values& values, Origin origin,
                                          const std::string& source);
  template <typename F>
  void for_each(F&& function) const {
    for (const auto& set : sets_) {
      for (DeclaredOption& option : set->all) function(option);
    }
  }

  void record_override(const DeclaredOption& option, Origin origin, const std::string& source,
                       const Values& values);

  std::vector<std::shared_ptr<DeclaredOptions>> sets_;
  std::vector<std::string> overrides_;
  ConfigFileOptions* config_file_ = nullptr;
};

}  // namespace sluice::cli
