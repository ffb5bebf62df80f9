#include "config/sizing/formats/wrapped_text.h"

#include <algorithm>

namespace sluice::config {

void append_wrapped(std::string& out, std::string_view text, std::string_view first_prefix,
                    std::string_view next_prefix) {
  constexpr size_t kWidth = 100;
  size_t column = first_prefix.size();
  out += first_prefix;
  bool has_word = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (has_word && column + 1 + end > kWidth) {
      out += '\n';
      out += next_prefix;
      column = next_prefix.size();
    } else if (has_word) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    has_word = true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

}  // namespace sluice::config
