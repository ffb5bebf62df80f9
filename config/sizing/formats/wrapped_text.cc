#include "config/sizing/formats/wrapped_text.h"

#include <algorithm>

namespace sluice::config {

void append_wrapped(std::string& out, std::string_view text, std::string_view first, std::string_view then) {
  constexpr size_t kWidth = 100;
  size_t column = first.size();
  out += first;
  bool begun = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (begun && column + 1 + end > kWidth) {
      out += '\n';
      out += then;
      column = then.size();
    } else if (begun) {
      out += ' ';
      ++column;
    }
    out += text.substr(0, end);
    column += end;
    begun = true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

}  // namespace sluice::config
