#include "core/ids.h"

namespace sluice {

std::string to_string(const SessionId& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string s;
  s.reserve(2 * id.bytes.size());
  for (uint8_t b : id.bytes) {
    s.push_back(kDigits[b >> 4]);
    s.push_back(kDigits[b & 15]);
  }
  return s;
}

}  // namespace sluice
