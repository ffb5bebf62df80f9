#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "cli/description/pages.h"

namespace sluice::cli {
namespace {

// Those of docs/exit-codes.md, which says what to do about each.
constexpr std::array<std::pair<int, const char*>, 9> kExitCodes = {{
    {0, "Done."},
    {1, "Failed while running."},
    {2, "Wrong data, or a figure that is not what was asked for."},
    {64, "Bad option, or options that contradict each other."},
    {69, "A peer is not there, or refuses."},
    {74, "A file or a stream cannot be read or written."},
    {75, "Not now: worth another try."},
    {77, "Not permitted."},
    {78, "A file of the configuration is missing or wrong."},
}};

// A line of text for man(7): no request at its beginning, hyphens that can be copied into a shell.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if (out.empty() && (c == '.' || c == '\'')) out += "\\&";
      out += c;
    }
  }
  return out;
}

// The program's own texts know three forms: a paragraph is a line, and lines that begin with a blank are
// examples, as they stand.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool verbatim = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (const bool example = line[0] == ' '; example != verbatim) {
      out += example ? ".PP\n.nf\n" : ".fi\n";
      verbatim = example;
    }
    if (!verbatim && !out.empty()) out += ".PP\n";
    out += roff(line) + "\n";
  }
  return out + (verbatim ? ".fi\n" : "");
}

// Help texts are clauses; beside a sentence that follows they need an end.
std::string sentence(std::string text) {
  if (!text.empty() && std::string_view(".?!:").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

std::string page_name(const CommandWords& command) {
  return command.joined('-');
}

void write_option(std::string& out, const OptionWords& option) {
  out += ".TP\n";
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + fmt::format("\\fB{}\\fR", roff(name));
  out += names;
  if (option.kind != ValueKind::kNone) out += fmt::format(" \\fI{}\\fR", roff(option.value));
  out += "\n" + roff(sentence(option.help.empty() ? "Nothing more is said of it" : option.help)) + "\n";
  if (!option.choices.empty())
    out += roff(fmt::format("One of: {}.", fmt::join(option.choices, ", "))) + "\n";
  if (!option.default_value.empty()) out += roff(fmt::format("Default: {}.", option.default_value)) + "\n";
  if (option.required) out += "Must be given.\n";
}

void write_options(std::string& out, const std::vector<OptionWords>& options) {
  std::vector<std::string> headings;
  for (const OptionWords& option : options) {
    if (std::find(headings.begin(), headings.end(), option.heading) == headings.end())
      headings.push_back(option.heading);
  }
  for (const std::string& heading : headings) {
    if (headings.size() > 1) out += ".SS " + roff(heading == "Options" ? "General" : heading) + "\n";
    for (const OptionWords& option : options) {
      if (option.heading == heading) write_option(out, option);
    }
  }
}

void list_commands(std::string& out, const CommandWords& command) {
  for (const CommandWords& below : command.commands) {
    out += fmt::format(".TP\n.BR {} (1)\n{}\n", roff(page_name(below)), roff(summary_of(below.help)));
    list_commands(out, below);
  }
}

}  // namespace

std::string man_page(const CommandWords& program, const CommandWords& command, const std::string& version) {
  std::string title = page_name(command);
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  // No date: the same program must give the same page, and its version says how old it is.
  std::string out = fmt::format(".TH {} 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", title,
                                version, roff(page_name(command)), roff(summary_of(command.help)));
  out += fmt::format(".SH SYNOPSIS\n.B {}\n", roff(command.joined(' ')));
  if (!command.options.empty()) out += "[\\fIOPTION\\fR ...]\n";
  for (const OptionWords& positional : command.positionals) {
    const std::string name = fmt::format("\\fI{}\\fR", roff(positional.names.front()));
    out += positional.required ? name + "\n" : "[" + name + "]\n";
  }
  if (!command.commands.empty()) out += "\\fICOMMAND\\fR ...\n";
  out += ".SH DESCRIPTION\n" + paragraphs(sentence(command.help) + "\n" + command.footer);
  if (!command.commands.empty()) {
    out += ".SH COMMANDS\n";
    list_commands(out, command);
  }
  if (!command.positionals.empty()) {
    out += ".SH ARGUMENTS\n";
    for (const OptionWords& positional : command.positionals) write_option(out, positional);
  }
  if (!command.options.empty()) {
    out += ".SH OPTIONS\n";
    write_options(out, command.options);
  }
  out += ".SH ENVIRONMENT\n" +
         roff("Option --foo-bar is also variable SLUICE_FOO_BAR; the command line goes first.") + "\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) out += fmt::format(".TP\n.B {}\n{}\n", code, meaning);
  if (command.path.size() > 1) out += fmt::format(".SH SEE ALSO\n.BR {} (1)\n", roff(program.name()));
  return out;
}

}  // namespace sluice::cli
