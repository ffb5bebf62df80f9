// Other people's words in our messages: one line, and not all of a megabyte.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace sluice::config {

[[nodiscard]] inline std::string plain(std::string_view text, size_t most = 120) {
  std::string out(text.substr(0, most));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > most ? out + "..." : out;
}

[[nodiscard]] inline std::string quoted(std::string_view text) {
  return '"' + plain(text, 80) + '"';
}

}  // namespace sluice::config
