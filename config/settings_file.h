// Reads a TOML 1.0 configuration file as keys and text values, each with its position in the file. The caller
// interprets the keys; this parser knows no option.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

inline constexpr size_t kMaxSettingsFile = kMiB;

// Lines and columns start at 1; columns count characters, not bytes.
struct Position {
  uint32_t line = 1;
  uint32_t column = 1;
};

struct Setting {
  enum class Kind : uint8_t { kText, kInteger, kFraction, kFlag, kDate, kList, kTable };

  std::string key;  // empty for an item of a list
  Kind kind = Kind::kText;
  std::string text;  // the value as an environment variable would hold it; empty for lists and tables
  std::vector<Setting> items;  // of a list or a table, in file order
  Position key_position;
  Position value_position;
};

// Returns "a string", "an integer", "an array" and so on, for messages.
[[nodiscard]] std::string_view kind_name(Setting::Kind kind) noexcept;

// Returns "reducer.toml:12:9".
[[nodiscard]] std::string position_text(const std::string& path, Position position);

// Parses `text`; a table is one Setting with items. Errors are kInvalidArgument and begin with
// `path`:line:column.
[[nodiscard]] Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path);

// Returns kSystem when `path` cannot be read. Returns kInvalidArgument when it is not a regular file, longer
// than kMaxSettingsFile or not TOML. Never blocks: pipes and terminals are rejected.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const std::string& path);

}  // namespace sluice::config
