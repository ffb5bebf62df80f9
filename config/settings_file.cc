#include "config/settings_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "config/file_contents.h"
#include "config/printable_text.h"

// Without exceptions a parse error is a value, and no other file needs the library's types.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// The library (3.3) asserts conditions that a file can violate. Examples are a key that begins with a bracket
// ("[[[") and a non-ASCII letter in the place of a space. With NDEBUG it marks the same code unreachable.
// With both disabled here, the library reports a parse error instead.
#undef NDEBUG
#define TOML_ASSERT(condition) static_assert(true)
#include <toml++/impl/forward_declarations.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE __builtin_unreachable()
#include <toml++/toml.h>

namespace sluice::config {
namespace {

Position position_of(const toml::source_region& source) {
  return {.line = std::max<uint32_t>(source.begin.line, 1),
          .column = std::max<uint32_t>(source.begin.column, 1)};
}

std::string number_text(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
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

Result<std::string> read_file(const std::string& path) {
  using Status = FileContents::Status;
  FileContents file = read_file_contents(path, kMaxSettingsFile, FileKind::kRegular);
  switch (file.status) {
    case Status::kOk: return std::move(file.text);
    case Status::kNotRegular: return fail(Errc::kInvalidArgument, path + ": not a regular file");
    case Status::kTooLong:
      return fail(Errc::kInvalidArgument, path + ": configuration file is longer than " +
                                              std::to_string(kMaxSettingsFile) + " bytes");
    case Status::kNotFound:
    case Status::kUnreadable: break;
  }
  return fail(Errc::kSystem, "cannot read " + path + ": " + std::strerror(file.error));
}

}  // namespace

std::string_view kind_name(Setting::Kind kind) noexcept {
  switch (kind) {
    case Setting::Kind::kText: return "a string";
    case Setting::Kind::kInteger: return "an integer";
    case Setting::Kind::kFraction: return "a floating-point number";
    case Setting::Kind::kFlag: return "a boolean";
    case Setting::Kind::kDate: return "a date or time";
    case Setting::Kind::kList: return "an array";
    case Setting::Kind::kTable: return "a table";
  }
  return "";
}

std::string position_text(const std::string& path, Position position) {
  return path + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    // The description quotes the file, which may contain any bytes.
    return fail(Errc::kInvalidArgument, position_text(path, position_of(parsed.error().source())) + ": " +
                                            printable(parsed.error().description()));
  }
  return settings_of(parsed.table());
}

Result<std::vector<Setting>> read_settings(const std::string& path) {
  auto text = read_file(path);
  if (!text) return tl::unexpected(std::move(text.error()));
  return parse_settings(*text, path);
}

}  // namespace sluice::config
