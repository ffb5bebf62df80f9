// A file of settings, TOML 1.0, as names and texts with the place where each stands. What the names mean is
// for whoever declares them; nothing here knows an option.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/units.h"

namespace sluice::config {

inline constexpr size_t kMaxSettingsFile = kMiB;

// Both from 1; columns count characters, not bytes.
struct Place {
  uint32_t line = 1;
  uint32_t column = 1;
};

struct Setting {
  enum class Kind : uint8_t { kText, kInteger, kFraction, kFlag, kDate, kList, kTable };

  std::string key;  // of what stands in a table; empty: an item of a list
  Kind kind = Kind::kText;
  std::string text;            // as one would write it in a variable; empty for lists and tables
  std::vector<Setting> items;  // of a list or a table, as they stand in the file
  Place key_at;
  Place at;  // of the value
};

// "a string", "a whole number", "a list": what people are told that they wrote.
[[nodiscard]] std::string_view words_for(Setting::Kind kind) noexcept;

// "reducer.toml:12:9"
[[nodiscard]] std::string place_text(const std::string& path, Place place);

// What `text` says, tables as settings of their own. kInvalidArgument begins with `path`:line:column.
[[nodiscard]] Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& path);

// kSystem when `path` can't be read, kInvalidArgument when it is no file, is longer than kMaxSettingsFile
// or is not TOML. Never waits: what is no file (a pipe, a terminal) is refused.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const std::string& path);

}  // namespace sluice::config
