#include "cli/options/configuration.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "bench/e2e/process/exit_codes.h"
#include "cli/options/option_set.h"
#include "config/nearest_name.h"
#include "config/variables.h"
#include "core/assert.h"

namespace sluice::cli {
namespace {

using bench::Failure;
using config::Setting;

// What a configuration file may contain for an option.
struct KindRules {
  std::string_view expected_type;
  Setting::Kind accepted[2];
};

const KindRules& rules_of(OptionKind kind) {
  using Kind = Setting::Kind;
  static constexpr KindRules kRules[] = {
      {"a string", {Kind::kText, Kind::kText}},
      {"an integer", {Kind::kInteger, Kind::kInteger}},
      {"a number", {Kind::kInteger, Kind::kFraction}},
      {"a string such as \"64K\" or a number of bytes", {Kind::kText, Kind::kInteger}},
      // 0 needs no unit; for other integers, the parser reports the missing unit.
      {"a string such as \"10s\"", {Kind::kText, Kind::kInteger}},
      {"true or false", {Kind::kFlag, Kind::kFlag}},
      {"an array of strings", {Kind::kList, Kind::kList}},
      {"an array of strings such as \"name=1\", or a table", {Kind::kList, Kind::kTable}},
  };
  static_assert(std::size(kRules) == static_cast<size_t>(OptionKind::kPairs) + 1);
  return kRules[static_cast<size_t>(kind)];
}

std::string joined_or_empty(const Values& values) {
  return values.empty() ? "(empty)" : fmt::format("{}", fmt::join(values, ","));
}

// Removes the option name that CLI11 puts before its messages; callers put the position there instead.
std::string without_name(const std::string& text, const DeclaredOption& option) {
  const std::string prefix = option.option->get_name() + ": ";
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

}  // namespace

Configuration::Configuration(std::vector<std::shared_ptr<DeclaredOptions>> sets) : sets_(std::move(sets)) {
  for_each([](DeclaredOption& option) {
    if (option.origin == Origin::kDefault && option.option->count() > 0) option.origin = Origin::kCommandLine;
  });
  for (const auto& set : sets_) {
    if (set->config_file != nullptr) config_file_ = set->config_file;
  }
  if (config_file_ != nullptr) config_file_->configuration = this;
}

Result<void> Configuration::apply(DeclaredOption& option, const Values& values, Origin origin,
                                  const std::string& source) {
  const auto previous = std::pair(option.origin, option.source);
  option.origin = origin;
  option.source = source;
  std::string error;
  if (values.empty()) {
    error = option.assign(values);
  } else {
    // Through CLI11, because an option may also have CLI11 checks.
    try {
      option.option->clear();
      for (const std::string& value : values) option.option->add_result(value);
      option.option->run_callback();
      return {};
    } catch (const CLI::ValidationError& e) {
      const std::string assignment = assignment_text(option, values);
      error = e.what();
      error = error.starts_with(assignment) ? error : assignment + ": " + without_name(error, option);
    } catch (const CLI::Error&) {
      error =
          assignment_text(option, values) + ": must be " + std::string(rules_of(option.kind).expected_type);
    }
  }
  if (error.empty()) return {};
  std::tie(option.origin, option.source) = previous;
  return invalid(error);
}

void Configuration::reject_unknown_variables() const {
  std::vector<std::string_view> known;
  for_each([&known](const DeclaredOption& option) { known.push_back(option.variable); });
  for (const config::Variable& variable : config::unknown_variables(environ)) {
    if (std::ranges::find(known, variable.name) != known.end()) continue;
    throw Failure(bench::kExitConfig, fmt::format("unknown variable {}; did you mean {}?", variable.name,
                                                  config::nearest_name(variable.name, known)));
  }
}

void Configuration::record_override(const DeclaredOption& option, Origin origin, const std::string& source,
                                    const Values& values) {
  if (option.current() == values) return;  // nothing is lost
  DeclaredOption unused = option;
  unused.origin = origin;
  unused.source = source;
  overrides_.push_back(fmt::format("{} has precedence over {}", assignment_text(option, option.current()),
                                   assignment_text(unused, values)));
}

void Configuration::apply_environment() {
  for_each([this](DeclaredOption& option) {
    if (option.variable.empty()) return;
    const char* const value = std::getenv(option.variable.c_str());
    if (value == nullptr || *value == 0) return;
    if (option.origin != Origin::kDefault)
      return record_override(option, Origin::kEnvironment, option.variable, {value});
    (void)bench::value_or_fail(
        apply(option, {value}, Origin::kEnvironment, option.variable).map([] { return 0; }),
        bench::kExitConfig);
  });
}

DeclaredOption& Configuration::find_option(std::string_view name) const {
  DeclaredOption* found = nullptr;
  for_each([&](DeclaredOption& option) {
    if (option.name == name) found = &option;
  });
  SLUICE_ASSERT(found != nullptr);
  return *found;
}

void Configuration::set_default(std::string_view name, const std::string& value) {
  DeclaredOption& option = find_option(name);
  option.default_values = {value};
  if (option.origin != Origin::kDefault) return;
  const std::string error = option.assign(option.default_values);
  if (!error.empty())
    throw Failure(bench::kExitConfig, assignment_text(option, option.default_values) + ": " + error);
}

Origin Configuration::origin_of(std::string_view name) const {
  return find_option(name).origin;
}

void Configuration::load() {
  if (config_file_ != nullptr) reject_unknown_variables();
  apply_environment();
  if (config_file_ != nullptr && !config_file_->path.empty()) {
    for (const FileValue& value : bench::value_or_fail(read_file(), bench::kExitConfig)) {
      if (value.option->origin != Origin::kDefault) {
        record_override(*value.option, Origin::kFile, value.position, value.values);
        continue;
      }
      const auto applied = apply(*value.option, value.values, Origin::kFile, value.position);
      if (!applied) throw Failure(bench::kExitConfig, applied.error().text);
    }
  }
  for (const auto& set : sets_) {
    for (const DeclaredOption& option : set->all) {
      if (option.required && option.origin == Origin::kDefault)
        throw Failure(bench::kExitUsage, option.name + " is required");
    }
  }
}

Result<std::vector<Configuration::FileValue>> Configuration::read_file() const {
  SLUICE_ASSIGN_OR_RETURN(settings, config::read_settings(config_file_->path));
  std::vector<FileValue> out;
  for (const Setting& setting : settings) {
    bool is_table = false;
    if (setting.kind == Setting::Kind::kTable) {
      for_each([&](const DeclaredOption& o) { is_table |= !o.key.empty() && o.table == setting.key; });
    }
    if (!is_table) {
      SLUICE_RETURN_IF_ERROR(match_setting(setting, "", out));
      continue;
    }
    for (const Setting& item : setting.items) SLUICE_RETURN_IF_ERROR(match_setting(item, setting.key, out));
  }
  return out;
}

Result<void> Configuration::match_setting(const Setting& setting, const std::string& table,
                                          std::vector<FileValue>& out) const {
  const std::string position = config::position_text(config_file_->path, setting.key_position);
  DeclaredOption* option = nullptr;
  for_each([&](DeclaredOption& o) {
    if (!o.key.empty() && o.key == setting.key) option = &o;
  });
  if (option == nullptr) return unknown_key(setting, table);
  if (!table.empty() && table != option->table)
    return invalid(fmt::format("{}: key \"{}\" belongs in table [{}]", position, setting.key, option->table));
  for (const FileValue& other : out) {
    if (other.option == option)
      return invalid(
          fmt::format("{}: key \"{}\" is already set at {}", position, setting.key, other.position));
  }
  SLUICE_ASSIGN_OR_RETURN(values, setting_values(*option, setting));
  out.push_back(
      {option, std::move(values), config::position_text(config_file_->path, setting.value_position)});
  return {};
}

Result<Values> Configuration::setting_values(const DeclaredOption& option, const Setting& setting) const {
  const KindRules& rules = rules_of(option.kind);
  const auto type_error = [&](const Setting& found) {
    return invalid(fmt::format("{}: {}: expected {}, found {}",
                               config::position_text(config_file_->path, found.value_position), setting.key,
                               rules.expected_type, config::kind_name(found.kind)));
  };
  if (std::ranges::find(rules.accepted, setting.kind) == std::end(rules.accepted)) return type_error(setting);
  if (setting.kind != Setting::Kind::kList && setting.kind != Setting::Kind::kTable)
    return Values{setting.text};
  Values out;
  for (const Setting& item : setting.items) {
    if (setting.kind == Setting::Kind::kTable) {
      if (item.kind != Setting::Kind::kInteger && item.kind != Setting::Kind::kText) return type_error(item);
      out.push_back(item.key + "=" + item.text);
    } else {
      if (item.kind != Setting::Kind::kText) return type_error(item);
      out.push_back(item.text);
    }
  }
  return out;
}

tl::unexpected<Error> Configuration::unknown_key(const Setting& setting, const std::string& table) const {
  std::vector<std::string_view> names;
  for_each([&](const DeclaredOption& o) {
    if (o.key.empty()) return;
    names.push_back(o.key);
    if (table.empty() && setting.kind == Setting::Kind::kTable) names.push_back(o.table);
  });
  return invalid(fmt::format("{}: unknown {} \"{}\"; did you mean \"{}\"?",
                             config::position_text(config_file_->path, setting.key_position),
                             setting.kind == Setting::Kind::kTable ? "table" : "key", setting.key,
                             config::nearest_name(setting.key, names)));
}

Result<Configuration::Changes> Configuration::reload(const std::function<Result<void>()>& accept) {
  struct Saved {
    DeclaredOption* option;
    Values values;
    Origin origin;
    std::string source;
  };
  std::vector<Saved> saved;
  for_each([&](DeclaredOption& o) { saved.push_back({&o, o.current(), o.origin, o.source}); });
  const auto restore = [](const Saved& s) {
    (void)s.option->assign(s.values);
    s.option->origin = s.origin;
    s.option->source = s.source;
  };

  const auto try_reload = [&]() -> Result<Changes> {
    std::vector<FileValue> file_values;
    if (config_file_ != nullptr && !config_file_->path.empty()) {
      SLUICE_ASSIGN_OR_RETURN(read, read_file());
      file_values = std::move(read);
    }
    for (const Saved& s : saved) {
      if (s.option->origin != Origin::kFile) continue;
      (void)s.option->assign(s.option->default_values);
      s.option->origin = Origin::kDefault;
      s.option->source.clear();
    }
    for (const FileValue& value : file_values) {
      if (value.option->origin != Origin::kDefault) continue;
      SLUICE_RETURN_IF_ERROR(apply(*value.option, value.values, Origin::kFile, value.position));
    }
    Changes changes;
    for (const Saved& s : saved) {
      const Values now = s.option->current();
      if (now == s.values) continue;
      if (s.option->reloadable) {
        changes.applied.push_back(
            fmt::format("{} {} -> {}", s.option->key, joined_or_empty(s.values), joined_or_empty(now)));
      } else {
        changes.require_restart.push_back(s.option->key);
        restore(s);
      }
    }
    SLUICE_RETURN_IF_ERROR(accept());
    return changes;
  };
  try {
    auto changes = try_reload();
    if (!changes) std::ranges::for_each(saved, restore);
    return changes;
  } catch (...) {  // out of memory
    std::ranges::for_each(saved, restore);
    throw;
  }
}

}  // namespace sluice::cli
