#include "cli/description/command_tree.h"

#include <algorithm>
#include <utility>

namespace sluice::cli {
namespace {

bool is_plain(const std::string& word) {
  return !word.empty() &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") ==
             std::string::npos;
}

// CLI11 tells an option's checks by its type's name: "LEVEL:{debug,info}". Splits that; other checks, as
// ":INT in [0 - 5]", only go.
std::vector<std::string> take_choices(std::string& type) {
  const size_t begin = type.find(":{");
  std::vector<std::string> choices;
  if (begin != std::string::npos && type.back() == '}') {
    std::string word;
    for (size_t i = begin + 2; i < type.size(); ++i) {
      if (type[i] != ',' && type[i] != '}') {
        word += type[i];
        continue;
      }
      if (is_plain(word)) choices.push_back(word);
      word.clear();
    }
    type.resize(begin);
  }
  if (const size_t other = type.find(":INT in "); other != std::string::npos) type.resize(other);
  return choices;
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords words;
  if (option.get_positional()) {
    words.names = {option.get_name(true)};
  } else {
    for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() != 0) {
    words.value = option.get_type_name();
    words.choices = take_choices(words.value);
    if (words.value.empty()) words.value = "VALUE";
    words.kind = !words.choices.empty()    ? ValueKind::kChoices
                 : words.value == "FILE"   ? ValueKind::kFile
                 : words.value == "FOLDER" ? ValueKind::kFolder
                 : words.value == "DIR"    ? ValueKind::kFolder
                                           : ValueKind::kAnything;
  }
  words.help = option.get_description();
  words.heading = option.get_group();
  words.default_value = option.get_default_str();
  words.required = option.get_required();
  return words;
}

CommandWords tree_of(const CLI::App& app, std::vector<std::string> path) {
  CommandWords words;
  words.path = std::move(path);
  words.path.push_back(app.get_name());
  words.help = app.get_description();
  words.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options({})) {
    if (option->get_group().empty()) continue;  // hidden
    (option->get_positional() ? words.positionals : words.options).push_back(words_of(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) words.commands.push_back(tree_of(*command, words.path));
  }
  return words;
}

}  // namespace

std::string CommandWords::joined(char between) const {
  std::string text;
  for (const std::string& word : path) text += (text.empty() ? "" : std::string(1, between)) + word;
  return text;
}

std::string CommandWords::way() const {
  std::string text;
  for (size_t i = 1; i < path.size(); ++i) text += path[i] + "/";
  return text;
}

CommandWords command_tree(const CLI::App& program) {
  return tree_of(program, {});
}

std::string summary_of(const std::string& help) {
  std::string line = help.substr(0, std::min({help.find('\n'), help.find(". "), help.find("; ")}));
  if (!line.empty() && line.back() == '.') line.pop_back();
  return line;
}

}  // namespace sluice::cli
