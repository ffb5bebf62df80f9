// Parses a text that consists of one number and nothing else.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace sluice {

// Returns nothing for an empty text, a space, a "+", any other character after the number, and a value that T
// cannot hold. An integer is decimal; only a signed type accepts "-".
template <typename T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text) noexcept {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional<T>(value) : std::nullopt;
}

}  // namespace sluice
