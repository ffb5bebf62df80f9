// Copies text and structs into memory that the caller of the C API provides.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace sluice::api {

// Copies as much of `text` as fits and always terminates it. Does nothing without a buffer.
inline void copy_text(std::string_view text, char* out, size_t size) noexcept {
  if (out == nullptr || size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

// Copies a struct to a caller whose version of it has `size` bytes: cuts it off, or fills the rest with
// zeros.
template <typename Struct>
void copy_sized(const Struct& ours, Struct* out, size_t size) noexcept {
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &ours, std::min(size, sizeof ours));
}

}  // namespace sluice::api
