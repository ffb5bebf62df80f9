// File names of variables such as SLUICE_STATS_FILE, in which %X stands for a value of the process.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace sluice::config {

struct PatternValue {
  char letter;  // 'h' for "%h"
  std::string_view value;
};

// Replaces "%X" by the value of letter X and "%%" by a percent sign. Everything else remains.
[[nodiscard]] std::string expand_file_pattern(std::string_view pattern,
                                              std::initializer_list<PatternValue> values);

// True for an empty name and for "/dev/null": no file is wanted.
[[nodiscard]] inline bool names_no_file(std::string_view pattern) noexcept {
  return pattern.empty() || pattern == "/dev/null";
}

// The name of this host; "unknown" when the system does not tell it.
[[nodiscard]] std::string host_name();

}  // namespace sluice::config
