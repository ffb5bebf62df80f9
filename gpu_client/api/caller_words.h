// What goes into memory of the caller's: text that always ends, structs of another version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace sluice::api {

inline void copy_text(std::string_view text, char* out, size_t size) noexcept {
  if (out == nullptr || size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

// What fits of `own` into the caller's struct of another version, and zeros behind it.
template <typename Struct>
void copy_sized(const Struct& own, Struct* out, size_t size) noexcept {
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &own, std::min(size, sizeof own));
}

}  // namespace sluice::api
