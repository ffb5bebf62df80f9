// For plain bash, without the package bash-completion: words that bash split at "=" are put together here.
#include <fmt/format.h>

#include "cli/description/pages.h"

namespace sluice::cli {
namespace {

constexpr std::string_view kScript = R"(
_FUNCTION() {
  local current=${COMP_WORDS[COMP_CWORD]} path='' option='' word at kind choices commands flags valued
  COMPREPLY=()
  _FUNCTION_words ''
  for ((at = 1; at < COMP_CWORD; at++)); do
    word=${COMP_WORDS[at]}
    if [[ -n $option && $word == '=' ]]; then continue; fi
    if [[ -n $option && $word != -* ]]; then
      option=''
      continue
    fi
    option=''
    if [[ $word == -- ]]; then  # what follows is another program's
      if ((at + 1 == COMP_CWORD)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$current")
      else
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi
      return
    elif [[ " $valued " == *" $word "* ]]; then
      option=$word
    elif [[ $word != -* && " $commands " == *" $word "* ]]; then
      path="$path$word/"
      _FUNCTION_words "$path"
    fi
  done
  if [[ -n $option && $current == '=' ]]; then current=''; fi
  if [[ -z $option && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags $valued" -- "$current")
    return
  fi
  if [[ -n $option && $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags $valued" -- "$current")
    return
  fi
  _FUNCTION_value "$path$option"
  if [[ -n $commands && -z $option ]]; then choices="$commands $choices"; fi
  case $kind in
    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current") ;;
  esac
}

complete -F _FUNCTION PROGRAM
)";

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

void add(std::string& list, const std::string& word) {
  list += (list.empty() ? "" : " ") + word;
}

void words_case(std::string& out, const CommandWords& command) {
  std::string commands, flags, valued;
  for (const CommandWords& below : command.commands) add(commands, below.name());
  for (const OptionWords& option : command.options) {
    for (const std::string& name : option.names) add(option.kind == ValueKind::kNone ? flags : valued, name);
  }
  out += fmt::format("    '{}') commands='{}' flags='{}' valued='{}' ;;\n", command.way(), commands, flags,
                     valued);
  for (const CommandWords& below : command.commands) words_case(out, below);
}

void value_case(std::string& out, const std::string& where, const OptionWords& option) {
  if (option.kind == ValueKind::kFile) out += fmt::format("    '{}') kind=file ;;\n", where);
  if (option.kind == ValueKind::kFolder) out += fmt::format("    '{}') kind=folder ;;\n", where);
  if (option.kind == ValueKind::kChoices)
    out += fmt::format("    '{}') choices='{}' ;;\n", where, fmt::join(option.choices, " "));
}

void value_cases(std::string& out, const CommandWords& command) {
  for (const OptionWords& option : command.options) {
    for (const std::string& name : option.names) value_case(out, command.way() + name, option);
  }
  // The first alone: which one stands there is not worth counting for programs that have one or none.
  if (!command.positionals.empty()) value_case(out, command.way(), command.positionals.front());
  for (const CommandWords& below : command.commands) value_cases(out, below);
}

}  // namespace

std::string bash_completion(const CommandWords& program) {
  const std::string function = replaced(program.name(), "-", "_");
  std::string out = fmt::format(
      "# bash completion of {0}; written by `{0} completion bash`\n\n_{1}_words() {{\n  case $1 in\n",
      program.name(), function);
  words_case(out, program);
  out += fmt::format("  esac\n}}\n\n_{}_value() {{\n  kind='' choices=''\n  case $1 in\n", function);
  value_cases(out, program);
  out += "  esac\n}\n";
  return out +
         replaced(replaced(std::string(kScript), "_FUNCTION", "_" + function), "PROGRAM", program.name());
}

}  // namespace sluice::cli
