// The end of the range of keys that start with a prefix.
#pragma once

#include <string>
#include <string_view>

namespace sluice::store {

// The first text after all texts that start with `prefix`, which is a valid key.
[[nodiscard]] inline std::string prefix_end(std::string_view prefix) {
  std::string end(prefix);
  ++end.back();  // at most '~', so this does not overflow
  return end;
}

}  // namespace sluice::store
