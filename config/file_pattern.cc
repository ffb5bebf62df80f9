#include "config/file_pattern.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace sluice::config {

std::string expand_file_pattern(std::string_view pattern, std::initializer_list<PatternValue> values) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    const auto* const value = std::ranges::find(values, next, &PatternValue::letter);
    if (next == '%') {
      path += '%';
    } else if (next != '\0' && value != values.end()) {
      path += value->value;
    } else {
      path += pattern[i];
      continue;
    }
    ++i;
  }
  return path;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace sluice::config
