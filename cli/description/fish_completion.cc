#include <fmt/format.h>

#include "cli/description/pages.h"

namespace sluice::cli {
namespace {

std::string quoted_word(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// Words as they may follow each other: "bench/allreduce" a command, "reducer/--listen" an option that takes
// the next word.
void collect(const CommandWords& command, std::string& commands, std::string& valued) {
  for (const OptionWords& option : command.options) {
    if (option.kind == ValueKind::kNone) continue;
    for (const std::string& name : option.names) valued += " " + quoted_word(command.way() + name);
  }
  for (const CommandWords& below : command.commands) {
    commands += " " + quoted_word(command.way() + below.name());
    collect(below, commands, valued);
  }
}

std::string offer_of(const OptionWords& option) {
  switch (option.kind) {
    case ValueKind::kNone: return "";
    case ValueKind::kAnything: return " -x";
    case ValueKind::kChoices: return fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
    case ValueKind::kFile: return " -r -F";
    case ValueKind::kFolder: return " -x -a '(__fish_complete_directories)'";
  }
  return "";
}

void write_lines(std::string& out, const CommandWords& command, const std::string& function) {
  const std::string& program = command.path.front();
  const std::string begin = fmt::format("complete -c {} -n \"{} '{}'\"", program, function, command.way());
  for (const CommandWords& below : command.commands)
    out += fmt::format("{} -f -a {} -d {}\n", begin, below.name(), quoted_word(summary_of(below.help)));
  for (const OptionWords& positional : command.positionals) {
    if (positional.kind == ValueKind::kChoices)
      out += fmt::format("{} -f -a '{}'\n", begin, fmt::join(positional.choices, " "));
    if (positional.kind == ValueKind::kFile) out += begin + " -F\n";
  }
  for (const OptionWords& option : command.options) {
    std::string names;
    for (const std::string& name : option.names)
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    out +=
        fmt::format("{}{}{} -d {}\n", begin, names, offer_of(option), quoted_word(summary_of(option.help)));
  }
  for (const CommandWords& below : command.commands) write_lines(out, below, function);
}

}  // namespace

std::string fish_completion(const CommandWords& program) {
  std::string commands, valued, function = "__" + program.name() + "_at";
  for (char& c : function) c = c == '-' ? '_' : c;
  collect(program, commands, valued);
  std::string out =
      fmt::format("# fish completion of {0}; written by `{0} completion fish`\n\n", program.name());
  out += fmt::format(
      R"(# Whether the words so far lead to the command whose path is $argv[1]: "bench/allreduce/".
function {}
  set -l words (commandline -opc)
  set -e words[1]
  set -l path ''
  set -l value no
  for word in $words
    if test $value = yes
      set value no
      string match -q -- '-*' $word; or continue
    end
    if test "$word" = --
      set path --
      break
    end
    switch "$path$word"
      case{}
        set path "$path$word/"
      case{}
        set value yes
    end
  end
  test "$path" = "$argv[1]"
end

complete -c {} -f
)",
      function, commands.empty() ? " ''" : commands, valued.empty() ? " ''" : valued, program.name());
  // After "--" the words are another program's.
  out += fmt::format("complete -c {} -n \"{} --\" -F\n", program.name(), function);
  write_lines(out, program, function);
  return out;
}

}  // namespace sluice::cli
