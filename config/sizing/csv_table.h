// A table that people write: comma-separated values with a header line, read strictly.
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
  size_t column = 0;  // of its first character in its line, from 1
};

struct CsvRow {
  size_t line = 0;  // from 1
  std::vector<CsvField> fields;
};

// Rows as they stand, the header among them. A field in double quotes may hold commas, and "" for a quote,
// but no line break. Spaces around a field are not part of it unless quoted. Lines that are empty or begin
// with '#' are skipped; a byte order mark in front and CR before LF are allowed. kInvalidArgument as
// "NAME:line:column: what is wrong"; `name` is what the text is called: a file.
[[nodiscard]] Result<std::vector<CsvRow>> parse_csv(std::string_view text, const std::string& name);

// "prices.csv:3:17: ".
[[nodiscard]] std::string csv_place(const std::string& name, size_t line, size_t column);

}  // namespace sluice::config
