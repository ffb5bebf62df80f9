// Other people's words in our messages: one line, and not all of a megabyte.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace sluice::config::discovery {

[[nodiscard]] inline std::string plain(std::string_view text) {
  constexpr size_t kShown = 120;
  std::string out(text.substr(0, kShown));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > kShown ? out + "..." : out;
}

}  // namespace sluice::config::discovery
