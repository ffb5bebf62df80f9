#include "cli/options/option_set.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "core/parse_number.h"

namespace sluice::cli {
namespace {

std::vector<std::shared_ptr<DeclaredOptions>>& mutable_selected_options() {
  static std::vector<std::shared_ptr<DeclaredOptions>> sets;
  return sets;
}

std::string first_long(const std::string& names) {
  const size_t begin = names.find("--");
  return begin == std::string::npos ? std::string() : names.substr(begin, names.find(',', begin) - begin);
}

// Returns "capacity" for "Capacity (bytes)".
std::string first_word(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) break;
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string joined(const Values& values, const char* separator) {
  std::string out;
  for (const std::string& value : values) out += (out.empty() ? "" : separator) + value;
  return out;
}

// `app` must outlive the parse.
CLI::callback_t assign_callback(const CLI::App& app, const DeclaredOption& option) {
  return [&app, &option](const Values& values) {
    for (const std::string& value : values) {
      if (value.starts_with("--") && app.get_option_no_throw(value) != nullptr)
        throw CLI::ValidationError(option.name + " needs a value; after it comes the option " + value);
    }
    if (const std::string error = option.assign(values); !error.empty())
      throw CLI::ValidationError(assignment_text(option, values) + ": " + error);
    return true;
  };
}

}  // namespace

std::string variable_of(const std::string& names) {
  const std::string name = first_long(names);
  if (name.empty()) return {};
  std::string variable = "SLUICE_";
  for (const char c : name.substr(2)) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

const std::vector<std::shared_ptr<DeclaredOptions>>& selected_options() {
  return mutable_selected_options();
}

std::string assignment_text(const DeclaredOption& option, const Values& values) {
  const std::string value = joined(values, ",");
  switch (option.origin) {
    case Origin::kFile: return option.source + ": " + option.key + " = " + value;
    case Origin::kEnvironment: return option.source + "=" + value;
    default: return option.name + " " + value;
  }
}

// CLI11 does not read the environment. It would apply variables to every subcommand, selected or not, and
// could not report that an invalid value came from a variable. Configuration applies them after the parse,
// only for the selected commands. A required option may still come from a variable, so CLI11 must not require
// it either.
OptionSet::OptionSet(CLI::App& app) : options_(std::make_shared<DeclaredOptions>()) {
  options_->app = &app;
  app.preparse_callback([options = options_](size_t) {
    mutable_selected_options().push_back(options);
    for (DeclaredOption& option : options->all) {
      option.required = option.required || option.option->get_required();
      option.option->required(false);
    }
  });
}

OptionSet& OptionSet::group(const std::string& heading) {
  heading_ = heading;
  return *this;
}

OptionSet& OptionSet::reloadable() {
  reloadable_ = true;
  return *this;
}

OptionSet& OptionSet::variable(const std::string& name) {
  variable_ = name;
  return *this;
}

std::shared_ptr<ConfigFileOptions> OptionSet::add_config_file_options() {
  auto out = std::make_shared<ConfigFileOptions>();
  const std::string previous_heading = std::exchange(heading_, "Configuration");
  text("--config", out->path, "FILE",
       "TOML configuration file; the command line and environment variables have precedence");
  options_->all.back().key.clear();
  CLI::App& app = *options_->app;
  app.add_flag(
         "--print-config", out->print,
         "print every option with its value and its origin as a configuration file, then exit; "
         "--print-config=sample prints a commented file with the defaults, --print-config=markdown a table")
      ->check(CLI::IsMember({"true", "sample", "markdown"}))
      ->option_text("[=sample|markdown]")
      ->group(heading_);
  app.add_flag("--check-config", out->check,
               "check options, configuration file, keys and certificates, then exit with 0 or 78")
      ->group(heading_);
  heading_ = previous_heading;
  options_->config_file = out.get();
  // Shares ownership with the app's callbacks.
  options_->all.back().current = [out] { return Values{out->path}; };
  return out;
}

DeclaredOption& OptionSet::declare(const std::string& names, const std::string& help) {
  DeclaredOption& declared = options_->all.emplace_back();
  declared.name = first_long(names);
  declared.variable = variable_.empty() ? variable_of(names) : std::exchange(variable_, {});
  declared.key = declared.name.substr(std::min<size_t>(2, declared.name.size()));
  std::ranges::replace(declared.key, '-', '_');
  declared.table = first_word(heading_);
  declared.help = help;
  declared.reloadable = std::exchange(reloadable_, false);
  return declared;
}

DeclaredOption& OptionSet::scalar(const std::string& names, const Assign& assign, const Current& current,
                                  const std::string& help) {
  DeclaredOption& declared = declare(names, help);
  declared.assign = [assign](const Values& values) {
    return values.empty() ? "value is missing" : assign(values.back());
  };
  declared.current = [current] { return Values{current()}; };
  declared.option =
      options_->app->add_option(names, assign_callback(*options_->app, declared), help)->take_last();
  return declared;
}

CLI::Option* OptionSet::finish(DeclaredOption& declared, const std::string& type,
                               const std::string& default_text) {
  declared.default_values = declared.current();
  if (!heading_.empty()) declared.option->group(heading_);
  if (!type.empty()) declared.option->type_name(type);
  if (!default_text.empty()) declared.option->default_str(default_text);
  std::string description = declared.help;
  if (!declared.range.empty() && declared.kind != OptionKind::kText)
    description += " [" + declared.range + "]";
  if (declared.reloadable) description += " [SIGHUP]";
  return declared.option->description(description);
}

CLI::Option* OptionSet::text(const std::string& names, std::string& target, const std::string& type,
                             const std::string& help, const Check& check) {
  const auto assign = [&target, check](const std::string& value) {
    std::string error = check ? check(value) : std::string();
    if (error.empty()) target = value;
    return error;
  };
  return finish(scalar(
                    names, assign, [&target] { return target; }, help),
                type, target);
}

CLI::Option* OptionSet::output_file(const std::string& names, std::string& target, const std::string& help) {
  CLI::Option* const option = text(names, target, "FILE", help);
  options_->all.back().is_output_file = true;
  return option;
}

CLI::Option* OptionSet::choice(const std::string& names, std::string& target, const std::string& type,
                               const Values& choices, const std::string& help) {
  const auto assign = [&target](const std::string& value) {
    target = value;
    return std::string();
  };
  return add_choice(
      names, type, choices, assign, [&target] { return target; }, help);
}

CLI::Option* OptionSet::add_choice(const std::string& names, const std::string& type, const Values& choices,
                                   const Assign& assign, const Current& current, const std::string& help) {
  const std::string range = "one of " + joined(choices, ", ");
  DeclaredOption& declared = scalar(
      names,
      [assign, choices, range](const std::string& value) {
        return std::ranges::find(choices, value) == choices.end() ? "must be " + range : assign(value);
      },
      current, help);
  declared.range = range;
  return finish(declared, type + ":{" + joined(choices, ",") + "}", current());
}

CLI::Option* OptionSet::list(const std::string& names, std::vector<std::string>& target,
                             const std::string& help, const Check& check) {
  return add_list(names, target, help, check, OptionKind::kList);
}

CLI::Option* OptionSet::pairs(const std::string& names, std::vector<std::string>& target,
                              const std::string& help, const Check& check) {
  return add_list(names, target, help, check, OptionKind::kPairs);
}

CLI::Option* OptionSet::add_list(const std::string& names, std::vector<std::string>& target,
                                 const std::string& help, const Check& check, OptionKind kind) {
  DeclaredOption& declared = declare(names, help);
  declared.kind = kind;
  declared.assign = [&target, check](const Values& values) {
    for (const std::string& value : values) {
      if (std::string error = check ? check(value) : std::string(); !error.empty()) return error;
    }
    target = values;
    return std::string();
  };
  declared.current = [&target] { return target; };
  declared.option = options_->app->add_option(names, assign_callback(*options_->app, declared), help)
                        ->expected(CLI::detail::expected_max_vector_size)
                        ->take_all()
                        ->delimiter(',');
  return finish(declared, "LIST", "");
}

CLI::Option* OptionSet::flag(const std::string& names, bool& target, const std::string& help) {
  DeclaredOption& declared = declare(names, help);
  declared.kind = OptionKind::kFlag;
  declared.assign = [&target](const Values& values) {
    target = !values.empty() && values.back() == "true";
    return std::string();
  };
  declared.current = [&target] { return Values{target ? "true" : "false"}; };
  declared.option = options_->app->add_flag(names, target, help)->take_last();
  return finish(declared, "", "");
}

Result<OptionSet::Integer> OptionSet::parse_integer(std::string_view text) {
  Integer out;
  std::string_view digits = text;
  if (digits.starts_with('-')) {
    out.negative = true;
    digits.remove_prefix(1);
  }
  const bool hex = digits.starts_with("0x");
  if (hex) digits.remove_prefix(2);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.magnitude, hex ? 16 : 10);
  constexpr uint64_t kMaxNegative = uint64_t{1} << 63;
  if (digits.empty() || end != digits.data() + digits.size() || error != std::errc() ||
      (out.negative && out.magnitude > kMaxNegative)) {
    return invalid("expected an integer");
  }
  return out;
}

Result<double> OptionSet::parse_fraction(std::string_view text) {
  if (const auto value = parse_number<double>(text)) return *value;
  return invalid("expected a number");
}

}  // namespace sluice::cli
