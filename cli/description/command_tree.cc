#include "cli/description/command_tree.h"

#include <algorithm>
#include <utility>

namespace sluice::cli {
namespace {

bool is_safe_word(const std::string& word) {
  return !word.empty() &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") ==
             std::string::npos;
}

// CLI11 appends an option's checks to its type name. Removes the choices of "LEVEL:{debug,info}" from the
// type name and returns them; removes other checks such as ":INT in [0 - 5]".
std::vector<std::string> extract_choices(std::string& type) {
  const size_t begin = type.find(":{");
  std::vector<std::string> choices;
  if (begin != std::string::npos && type.back() == '}') {
    std::string word;
    for (size_t i = begin + 2; i < type.size(); ++i) {
      if (type[i] != ',' && type[i] != '}') {
        word += type[i];
        continue;
      }
      if (is_safe_word(word)) choices.push_back(word);
      word.clear();
    }
    type.resize(begin);
  }
  if (const size_t other = type.find(":INT in "); other != std::string::npos) type.resize(other);
  return choices;
}

OptionDescription describe_option(const CLI::Option& option) {
  OptionDescription out;
  if (option.get_positional()) {
    out.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() != 0) {
    out.value = option.get_type_name();
    out.choices = extract_choices(out.value);
    if (out.value.empty()) out.value = "VALUE";
    out.kind = !out.choices.empty()    ? ValueKind::kChoices
               : out.value == "FILE"   ? ValueKind::kFile
               : out.value == "FOLDER" ? ValueKind::kFolder
               : out.value == "DIR"    ? ValueKind::kFolder
                                       : ValueKind::kAnything;
  }
  out.help = option.get_description();
  out.heading = option.get_group();
  out.default_value = option.get_default_str();
  out.required = option.get_required();
  return out;
}

CommandDescription describe_command(const CLI::App& app, std::vector<std::string> path) {
  CommandDescription out;
  out.path = std::move(path);
  out.path.push_back(app.get_name());
  out.help = app.get_description();
  out.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? out.positionals : out.options).push_back(describe_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) out.commands.push_back(describe_command(*command, out.path));
  }
  return out;
}

}  // namespace

std::string CommandDescription::joined(char separator) const {
  std::string text;
  for (const std::string& word : path) text += (text.empty() ? "" : std::string(1, separator)) + word;
  return text;
}

std::string CommandDescription::subcommand_path() const {
  std::string text;
  for (size_t i = 1; i < path.size(); ++i) text += path[i] + "/";
  return text;
}

CommandDescription command_tree(const CLI::App& program) {
  return describe_command(program, {});
}

std::string summary_of(const std::string& help) {
  std::string line = help.substr(0, std::min({help.find('\n'), help.find(". "), help.find("; ")}));
  if (!line.empty() && line.back() == '.') line.pop_back();
  return line;
}

}  // namespace sluice::cli
