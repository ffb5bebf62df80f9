#include "config/settings_file.h"

#include <algorithm>
#include <utility>

#include "config/file_contents.h"
#include "config/printable_text.h"
#include "config/sizes.h"

// Without exceptions a parse error is a value, and no other file needs the library's types.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// The library (3.3) asserts conditions that a file can violate. Examples are a key that begins with a bracket
// ("[[[") and a non-ASCII letter in the place of a space. With NDEBUG it marks the same code unreachable.
// With both disabled here, the library reports a parse error instead.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#if __has_include(<toml++/impl/unicode.hpp>)  // since 3.4
#include <toml++/impl/forward_declarations.hpp>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.hpp>
#else
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#endif
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>

namespace sluice::config {
namespace {

Position position_of(const toml::source_region& source) {
  return {.line = std::max<uint32_t>(source.begin.line, 1),
          .column = std::max<uint32_t>(source.begin.column, 1)};
}

Setting setting_of(const toml::node& node);

std::vector<Setting> settings_of(const toml::table& table) {
  std::vector<Setting> out;
  for (const auto& [key, node] : table) {
    out.push_back(setting_of(node));
    out.back().key = std::string(key.str());
    out.back().key_position = position_of(key.source());
  }
  // The library sorts by name; messages must follow the order of the file.
  std::ranges::stable_sort(
      out, {}, [](const Setting& s) { return std::pair(s.key_position.line, s.key_position.column); });
  return out;
}

Setting setting_of(const toml::node& node) {
  using Kind = Setting::Kind;
  Setting out;
  out.value_position = position_of(node.source());
  switch (node.type()) {
    case toml::node_type::table:
      out.kind = Kind::kTable;
      out.items = settings_of(*node.as_table());
      break;
    case toml::node_type::array:
      out.kind = Kind::kList;
      for (const toml::node& item : *node.as_array()) out.items.push_back(setting_of(item));
      break;
    case toml::node_type::string: out.text = **node.as_string(); break;
    case toml::node_type::integer:
      out.kind = Kind::kInteger;
      out.text = std::to_string(**node.as_integer());
      break;
    case toml::node_type::floating_point:
      out.kind = Kind::kFraction;
      out.text = number_text(**node.as_floating_point());
      break;
    case toml::node_type::boolean:
      out.kind = Kind::kFlag;
      out.text = **node.as_boolean() ? "true" : "false";
      break;
    default: out.kind = Kind::kDate;
  }
  return out;
}

}  // namespace

std::string_view kind_name(Setting::Kind kind) noexcept {
  static constexpr std::string_view kNames[] = {"a string",  "an integer",     "a floating-point number",
                                                "a boolean", "a date or time", "an array",
                                                "a table"};
  static_assert(std::size(kNames) == static_cast<size_t>(Setting::Kind::kTable) + 1);
  return kNames[static_cast<size_t>(kind)];
}

std::string position_text(const std::string& path, Position position) {
  return path + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    // The description quotes the file, which may contain any bytes.
    return invalid(position_text(path, position_of(parsed.error().source())) + ": " +
                   printable(parsed.error().description()));
  }
  return settings_of(parsed.table());
}

Result<std::vector<Setting>> read_settings(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(text,
                          read_text_file(path, kMaxSettingsFile, FileKind::kRegular, "configuration file"));
  return parse_settings(text, path);
}

}  // namespace sluice::config
