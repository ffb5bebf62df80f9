#include "config/settings_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "config/plain_text.h"
#include "config/whole_file.h"

// Without exceptions a parse error is a value, and this stays the one place that sees the library.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// The library (3.3) asserts, and where assertions are off has compilers rely on, what a file can break: a key
// that begins with a bracket ("[[["), a letter that is not ASCII where a space might be. Without either, its
// own errors come to the same end.
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

Place place_of(const toml::source_region& source) {
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
    out.back().key_at = place_of(key.source());
  }
  // The library sorts by name; people read from above.
  std::ranges::stable_sort(out, {},
                           [](const Setting& s) { return std::pair(s.key_at.line, s.key_at.column); });
  return out;
}

Setting setting_of(const toml::node& node) {
  using Kind = Setting::Kind;
  Setting out;
  out.at = place_of(node.source());
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

// The library quotes what it found, and that may be anything.
Result<std::string> read_file(const std::string& path) {
  using End = WholeFile::End;
  WholeFile file = read_whole_file(path, kMaxSettingsFile, FileKind::kRegular);
  switch (file.end) {
    case End::kRead: return std::move(file.text);
    case End::kNoFile: return fail(Errc::kInvalidArgument, path + ": is no file");
    case End::kTooLong:
      return fail(Errc::kInvalidArgument,
                  path + ": more than " + std::to_string(kMaxSettingsFile) + " bytes are no settings");
    case End::kMissing:
    case End::kUnreadable: break;
  }
  return fail(Errc::kSystem, path + ": cannot be read: " + std::strerror(file.error));
}

}  // namespace

std::string_view words_for(Setting::Kind kind) noexcept {
  switch (kind) {
    case Setting::Kind::kText: return "a string";
    case Setting::Kind::kInteger: return "a whole number";
    case Setting::Kind::kFraction: return "a number with a fraction";
    case Setting::Kind::kFlag: return "true or false";
    case Setting::Kind::kDate: return "a date or time";
    case Setting::Kind::kList: return "a list";
    case Setting::Kind::kTable: return "a table";
  }
  return "";
}

std::string place_text(const std::string& path, Place place) {
  return path + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
}

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path) {
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    return fail(Errc::kInvalidArgument, place_text(path, place_of(parsed.error().source())) + ": " +
                                            plain(parsed.error().description()));
  }
  return settings_of(parsed.table());
}

Result<std::vector<Setting>> read_settings(const std::string& path) {
  auto text = read_file(path);
  if (!text) return tl::unexpected(std::move(text.error()));
  return parse_settings(*text, path);
}

}  // namespace sluice::config
