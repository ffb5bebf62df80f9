// Parses comma-separated values with strict checks, because users edit such tables by hand.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::config {

inline constexpr size_t kMaxCsvBytes = 1024 * 1024;

struct CsvField {
  std::string text;
  size_t column = 0;  // of the first character, from 1
};

struct CsvRow {
  size_t line = 0;  // from 1
  std::vector<CsvField> fields;
};

// Returns all rows, including the header. A field in double quotes may contain commas, and "" for a quote,
// but no line break. Spaces around an unquoted field are removed. Empty lines and lines that begin with '#'
// are skipped; a byte order mark and CR before LF are accepted. Errors are kInvalidArgument,
// "NAME:line:column: reason", with `name` as the name of the table.
[[nodiscard]] Result<std::vector<CsvRow>> parse_csv(std::string_view text, const std::string& name);

// Returns "prices.csv:3:17: ".
[[nodiscard]] std::string csv_position(const std::string& name, size_t line, size_t column);

}  // namespace sluice::config
