// Makes foreign text safe for messages: one line of printable ASCII, bounded in length.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace sluice::config {

// Replaces characters that are not printable ASCII by '?' and cuts the text after `max` characters.
[[nodiscard]] inline std::string printable(std::string_view text, size_t max = 120) {
  std::string out(text.substr(0, max));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > max ? out + "..." : out;
}

[[nodiscard]] inline std::string in_quotes(std::string_view text) {
  return '"' + printable(text, 80) + '"';
}

}  // namespace sluice::config
