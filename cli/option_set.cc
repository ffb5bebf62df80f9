#include "cli/option_set.h"

#include <cctype>

namespace sluice::cli {
namespace {

template <typename Parse, typename T>
CLI::callback_t reader(Parse parse, T& target) {
  return [parse, &target](const CLI::results_t& results) {
    auto value = parse(results.back());
    if (!value) throw CLI::ValidationError(value.error().text);
    target = static_cast<T>(*value);
    return true;
  };
}

}  // namespace

std::string variable_of(const std::string& names) {
  const size_t begin = names.find("--");
  if (begin == std::string::npos) return {};
  std::string variable = "SLUICE_";
  for (size_t i = begin + 2; i < names.size() && names[i] != ','; ++i) {
    variable += names[i] == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(names[i])));
  }
  return variable;
}

// CLI11 reads variables for every subcommand, picked or not; one that is meant for another must do no harm.
// So options get theirs when parsing has come to their subcommand.
OptionSet::OptionSet(CLI::App& app) : app_(app), variables_(std::make_shared<Variables>()) {
  app.preparse_callback([variables = variables_](size_t) {
    for (const auto& [option, variable] : *variables) option->envname(variable);
  });
}

OptionSet& OptionSet::group(const std::string& heading) {
  heading_ = heading;
  return *this;
}

CLI::Option* OptionSet::finish(CLI::Option* option, const std::string& names) {
  if (!heading_.empty()) option->group(heading_);
  if (const std::string variable = variable_of(names); !variable.empty())
    variables_->emplace_back(option, variable);
  return option->take_last();
}

CLI::Option* OptionSet::text(const std::string& names, std::string& target, const std::string& type,
                             const std::string& help) {
  CLI::Option* option = app_.add_option(names, target, help)->type_name(type);
  if (!target.empty()) option->capture_default_str();
  return finish(option, names);
}

CLI::Option* OptionSet::list(const std::string& names, std::vector<std::string>& target,
                             const std::string& help) {
  CLI::Option* option = app_.add_option(names, target, help)->delimiter(',')->type_name("LIST");
  variables_->emplace_back(option, variable_of(names));
  return option;
}

CLI::Option* OptionSet::size(const std::string& names, uint64_t& target, const std::string& help) {
  CLI::Option* option = app_.add_option(names, reader(config::parse_size, target), help);
  return finish(option->type_name("SIZE")->default_str(config::size_text(target)), names);
}

CLI::Option* OptionSet::duration(const std::string& names, Nanos& target, const std::string& help) {
  CLI::Option* option = app_.add_option(names, reader(config::parse_duration, target), help);
  return finish(option->type_name("TIME")->default_str(config::duration_text(target)), names);
}

CLI::Option* OptionSet::flag(const std::string& names, bool& target, const std::string& help) {
  return finish(app_.add_flag(names, target, help), names);
}

}  // namespace sluice::cli
