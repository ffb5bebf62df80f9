// Where the values of a command's options come from when its command line has been read: what that does not
// say a variable may, what that does not say the file of --config may. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/declared_option.h"
#include "config/settings_file.h"
#include "core/result.h"

namespace sluice::cli {

class Configuration {
 public:
  // Of picked_options(), after the parse.
  explicit Configuration(std::vector<std::shared_ptr<DeclaredOptions>> sets);

  // Another default, before load(), for the option of this name ("--foo-bar"), which there must be. Throws
  // Failure(kExitConfig) for a value that it can't have.
  void set_default(std::string_view name, const std::string& value);

  // Variables, then the file, then what must be given. Throws Failure: kExitConfig with the variable, or with
  // file:line:column; kExitUsage for what is missing.
  void load();

  // Of the command; null: no file may configure it.
  [[nodiscard]] const ByFile* by_file() const noexcept { return by_file_; }
  [[nodiscard]] const std::vector<std::shared_ptr<DeclaredOptions>>& sets() const noexcept { return sets_; }

  // From when load() has returned.
  [[nodiscard]] Origin origin_of(std::string_view name) const;

  struct Changes {
    std::vector<std::string> taken;  // "log_level info -> debug"
    std::vector<std::string> later;  // keys that changed and count after a restart alone
  };
  // Reads the file once more. Targets of what changed and may change hold the new value when `accept` is
  // called, and go back to the old ones when it refuses. An error names the place; nothing has changed then.
  [[nodiscard]] Result<Changes> reread(const std::function<Result<void>()>& accept);

 private:
  struct Found {
    DeclaredOption* option;
    Values values;
    std::string place;
  };

  [[nodiscard]] DeclaredOption& named(std::string_view name) const;
  void take_environment();
  void refuse_unknown_variables() const;
  [[nodiscard]] Result<std::vector<Found>> read_file() const;
  [[nodiscard]] Result<void> match(const config::Setting& setting, const std::string& table,
                                   std::vector<Found>& out) const;
  [[nodiscard]] Result<Values> values_of(const DeclaredOption& option, const config::Setting& setting) const;
  [[nodiscard]] tl::unexpected<Error> unknown(const config::Setting& setting, const std::string& table) const;
  [[nodiscard]] static Result<void> take(DeclaredOption& option, const Values& values, Origin origin,
                                         const std::string& from);
  template <typename F>
  void for_each(F&& look) const {
    for (const auto& set : sets_) {
      for (DeclaredOption& option : set->all) look(option);
    }
  }

  std::vector<std::shared_ptr<DeclaredOptions>> sets_;
  ByFile* by_file_ = nullptr;
};

}  // namespace sluice::cli
