#include "cli/configuration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <vector>

namespace sluice::cli {
namespace {

constexpr size_t kWidth = 100;        // of comments
constexpr size_t kOriginColumn = 44;  // where the comments of values_text begin

// TOML 1.0, a basic string.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string value_text(const DeclaredOption& option, const Values& values) {
  switch (option.kind) {
    case OptionKind::kNumber:
    case OptionKind::kFraction:
    case OptionKind::kFlag: return values.back();
    case OptionKind::kList:
    case OptionKind::kPairs: {
      std::vector<std::string> items;
      for (const std::string& value : values) items.push_back(in_quotes(value));
      return fmt::format("[{}]", fmt::join(items, ", "));
    }
    default: return in_quotes(values.back());
  }
}

std::string origin_text(const DeclaredOption& option) {
  switch (option.origin) {
    case Origin::kCommandLine: return "cli";
    case Origin::kEnvironment: return "env " + option.from;
    case Origin::kFile: return option.from;
    case Origin::kDefault: break;
  }
  return "default";
}

// As comments of at most kWidth characters.
std::string commented(const std::string& text) {
  std::string out;
  std::string line = "#";
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth) {
      out += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

std::string command_of(const Configuration& configuration) {
  std::string out;
  for (const auto& set : configuration.sets()) out += (out.empty() ? "" : " ") + set->app->get_name();
  return out;
}

struct Table {
  std::string name;
  std::vector<const DeclaredOption*> options;
};

// In the order of the declarations, the command's own before what all commands have.
std::vector<Table> tables(const Configuration& configuration) {
  std::vector<Table> out;
  for (auto set = configuration.sets().rbegin(); set != configuration.sets().rend(); ++set) {
    for (const DeclaredOption& option : (*set)->all) {
      if (option.key.empty()) continue;
      auto table = std::ranges::find(out, option.table, &Table::name);
      if (table == out.end()) table = out.insert(out.end(), Table{option.table, {}});
      table->options.push_back(&option);
    }
  }
  return out;
}

}  // namespace

std::string values_text(const Configuration& configuration) {
  std::string out = commented(command_of(configuration) + ": what counts, and where it comes from");
  for (const Table& table : tables(configuration)) {
    out += fmt::format("\n[{}]\n", table.name);
    for (const DeclaredOption* option : table.options) {
      const std::string line = option->key + " = " + value_text(*option, option->current());
      out += fmt::format("{:<{}}  # {}\n", line, kOriginColumn, origin_text(*option));
    }
  }
  return out;
}

std::string sample_text(const Configuration& configuration) {
  std::string out = commented("For `" + command_of(configuration) + " --config FILE`, written by `" +
                              command_of(configuration) + " --print-config=sample`.");
  out += "#\n" + commented(
                     "Every line is what counts without it: take away the # in front of what is to be "
                     "another. The command line "
                     "and variables (SLUICE_LANES is lanes) go before this file. Sizes: \"64K\", \"4M\", "
                     "\"1G\" (powers of "
                     "1024). Times: \"500ms\", \"10s\". Keys may also stand above the first table. What "
                     "SIGHUP reads again "
                     "says so; the rest takes a restart. `--check-config` says whether the file is good.");
  for (const Table& table : tables(configuration)) {
    out += fmt::format("\n[{}]\n", table.name);
    for (const DeclaredOption* option : table.options) {
      std::string text = option->help;
      if (!option->range.empty()) text += " (" + option->range + ")";
      if (option->kind == OptionKind::kPairs) text += ". A list, or a table: { name = 2 }";
      if (option->reloadable) text += ". SIGHUP reads it again";
      out +=
          "\n" + commented(text) + "#" + option->key + " = " + value_text(*option, option->at_first) + "\n";
    }
  }
  return out;
}

bool print_if_asked(const Configuration& configuration) {
  const ByFile* const by_file = configuration.by_file();
  if (by_file == nullptr || by_file->print.empty()) return false;
  const std::string text =
      by_file->print == "sample" ? sample_text(configuration) : values_text(configuration);
  std::fputs(text.c_str(), stdout);
  return true;
}

}  // namespace sluice::cli
