#include "config/json_text.h"

namespace sluice::config {

void append_json_text(std::string& out, std::string_view text, size_t most_bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  out += '"';
  for (const char c : text.substr(0, most_bytes)) {
    if (c == '"' || c == '\\') {
      (out += '\\') += c;
    } else if (c < ' ' || c > '~') {
      const auto byte = static_cast<unsigned char>(c);
      ((out += "\\u00") += kDigits[byte >> 4]) += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace sluice::config
