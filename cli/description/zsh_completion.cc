// A function for each command, by zsh's own _arguments.
#include <fmt/format.h>

#include "cli/description/pages.h"

namespace sluice::cli {
namespace {

// Inside '...', where [, ] and : end what _arguments takes as text.
std::string in_quotes(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else if (c == '[' || c == ']' || c == ':' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      out += c == '\n' ? ' ' : c;
    }
  }
  return out;
}

std::string function_of(const CommandWords& command) {
  return "_" + command.joined('_');
}

std::string action_of(const OptionWords& option) {
  switch (option.kind) {
    case ValueKind::kChoices: return fmt::format("({})", fmt::join(option.choices, " "));
    case ValueKind::kFile: return "_files";
    case ValueKind::kFolder: return "_files -/";
    case ValueKind::kNone:
    case ValueKind::kAnything: break;
  }
  return " ";
}

void write_function(std::string& out, const CommandWords& command) {
  out +=
      fmt::format("{}() {{\n  local context state state_descr line\n  typeset -A opt_args\n  _arguments -C",
                  function_of(command));
  for (const OptionWords& option : command.options) {
    for (const std::string& name : option.names) {
      const bool is_long = name.starts_with("--");
      out += fmt::format(" \\\n    '({}){}{}[{}]", fmt::join(option.names, " "), name,
                         option.kind == ValueKind::kNone ? "" : (is_long ? "=" : "+"),
                         in_quotes(summary_of(option.help)));
      if (option.kind != ValueKind::kNone)
        out += fmt::format(":{}:{}", in_quotes(option.value), action_of(option));
      out += "'";
    }
  }
  if (!command.commands.empty()) {
    out +=
        " \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n  case $state in\n    command)\n"
        "      local -a commands=(";
    for (const CommandWords& below : command.commands)
      out += fmt::format("\n        '{}:{}'", below.name(), in_quotes(summary_of(below.help)));
    out += "\n      )\n      _describe command commands\n      ;;\n    argument)\n      case $line[1] in\n";
    for (const CommandWords& below : command.commands)
      out += fmt::format("        {}) {} ;;\n", below.name(), function_of(below));
    out += "      esac\n      ;;\n  esac\n";
  } else {
    for (const OptionWords& positional : command.positionals)
      out += fmt::format(" \\\n    '*:{}:{}'", in_quotes(positional.value), action_of(positional));
    out += "\n";
  }
  out += "}\n\n";
  for (const CommandWords& below : command.commands) write_function(out, below);
}

}  // namespace

std::string zsh_completion(const CommandWords& program) {
  std::string out = fmt::format("#compdef {0}\n# zsh completion of {0}; written by `{0} completion zsh`\n\n",
                                program.name());
  write_function(out, program);
  // In a file of $fpath this is the body of the function; read by `source` it only makes itself known.
  out += fmt::format("if [[ ${{funcstack[1]}} == {0} ]]; then\n  {0} \"$@\"\nelse\n  compdef {0} {1}\nfi\n",
                     function_of(program), program.name());
  return out;
}

}  // namespace sluice::cli
