// Little-endian loads and stores, independent of the host's byte order.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace sluice {

template <std::integral T>
[[nodiscard]] inline T load_le(const std::byte* p) noexcept {
  T v;
  std::memcpy(&v, p, sizeof v);
  if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
    T r = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      r = static_cast<T>((r << 8) | std::to_integer<uint8_t>(p[sizeof(T) - 1 - i]));
    v = r;
  }
  return v;
}

template <std::integral T>
inline void store_le(std::byte* p, T v) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(p, &v, sizeof v);
  } else {
    for (size_t i = 0; i < sizeof(T); ++i) p[i] = static_cast<std::byte>(static_cast<uint64_t>(v) >> (8 * i));
  }
}

}  // namespace sluice
