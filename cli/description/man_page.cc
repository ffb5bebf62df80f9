#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "cli/description/generators.h"

namespace sluice::cli {
namespace {

// The exit codes of docs/reference/configuration.md, which explains how to handle each.
constexpr std::array<std::pair<int, const char*>, 9> kExitCodes = {{
    {0, "Success."},
    {1, "Failure at run time."},
    {2, "Wrong data, or a measured value outside the requested limit."},
    {64, "Invalid option, or options that contradict each other."},
    {69, "A peer is unavailable or rejects the request."},
    {74, "A file or a stream cannot be read or written."},
    {75, "Temporary failure; try again later."},
    {77, "Permission denied."},
    {78, "A configuration file or variable is missing or invalid."},
}};

// Escapes a line for man(7): no request at its beginning, and hyphens that can be copied into a shell.
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

// Converts a footer: each line is a paragraph, and lines that begin with a space are verbatim examples.
std::string paragraphs(const std::string& text) {
  std::string out;
  bool verbatim = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(' ') == std::string::npos) continue;
    if (const bool is_example = line[0] == ' '; is_example != verbatim) {
      out += is_example ? ".PP\n.nf\n" : ".fi\n";
      verbatim = is_example;
    }
    if (!verbatim && !out.empty()) out += ".PP\n";
    out += roff(line) + "\n";
  }
  return out + (verbatim ? ".fi\n" : "");
}

// Adds a full stop to a help text, because other sentences follow it in the page.
std::string sentence(std::string text) {
  if (!text.empty() && std::string_view(".?!:").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

void write_option(std::string& out, const OptionDescription& option) {
  out += ".TP\n";
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "" : ", ") + fmt::format("\\fB{}\\fR", roff(name));
  out += names;
  if (option.kind != ValueKind::kNone) out += fmt::format(" \\fI{}\\fR", roff(option.value));
  out += "\n" + roff(sentence(option.help.empty() ? "No description" : option.help)) + "\n";
  if (!option.choices.empty())
    out += roff(fmt::format("One of: {}.", fmt::join(option.choices, ", "))) + "\n";
  if (!option.default_value.empty()) out += roff(fmt::format("Default: {}.", option.default_value)) + "\n";
  if (option.required) out += "Required.\n";
}

void write_options(std::string& out, const std::vector<OptionDescription>& options) {
  std::vector<std::string> headings;
  for (const OptionDescription& option : options) {
    if (std::ranges::find(headings, option.heading) == headings.end()) headings.push_back(option.heading);
  }
  for (const std::string& heading : headings) {
    if (headings.size() > 1) out += ".SS " + roff(heading == "Options" ? "General" : heading) + "\n";
    for (const OptionDescription& option : options) {
      if (option.heading == heading) write_option(out, option);
    }
  }
}

void list_commands(std::string& out, const CommandDescription& command) {
  for (const CommandDescription& subcommand : command.commands) {
    out +=
        fmt::format(".TP\n.BR {} (1)\n{}\n", roff(subcommand.joined('-')), roff(summary_of(subcommand.help)));
    list_commands(out, subcommand);
  }
}

}  // namespace

std::string man_page(const CommandDescription& program, const CommandDescription& command,
                     const std::string& version) {
  std::string title = command.joined('-');
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  // No date, so that the page depends only on the program.
  std::string out = fmt::format(".TH {} 1 \"\" \"{}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n", title,
                                version, roff(command.joined('-')), roff(summary_of(command.help)));
  out += fmt::format(".SH SYNOPSIS\n.B {}\n", roff(command.joined(' ')));
  if (!command.options.empty()) out += "[\\fIOPTION\\fR ...]\n";
  for (const OptionDescription& positional : command.positionals) {
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
    for (const OptionDescription& positional : command.positionals) write_option(out, positional);
  }
  if (!command.options.empty()) {
    out += ".SH OPTIONS\n";
    write_options(out, command.options);
  }
  out += ".SH ENVIRONMENT\n" +
         roff("Option --foo-bar is also variable SLUICE_FOO_BAR; the command line has precedence.") + "\n";
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) out += fmt::format(".TP\n.B {}\n{}\n", code, meaning);
  if (command.path.size() > 1) out += fmt::format(".SH SEE ALSO\n.BR {} (1)\n", roff(program.name()));
  return out;
}

}  // namespace sluice::cli
