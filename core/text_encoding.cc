#include "core/text_encoding.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace sluice {
namespace {

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNoBase64Digit = 255;

constexpr std::array<uint8_t, 256> kBase64Values = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNoBase64Digit);
  for (size_t i = 0; i < kBase64Digits.size(); ++i)
    values[static_cast<uint8_t>(kBase64Digits[i])] = static_cast<uint8_t>(i);
  return values;
}();

// The bytes of the UTF-8 sequence that begins the text and is shown as it is; 0: its first byte is escaped.
size_t visible_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  uint32_t character = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0xa0, 0x800, 0x10000};  // without C1 control characters
  if (character < kLeast[length] || character > 0x10ffff) return 0;
  constexpr std::array<std::pair<uint32_t, uint32_t>, 5> kHidden = {
      {{0xd800, 0xdfff}, {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}}};
  for (const auto& [from, to] : kHidden) {
    if (character >= from && character <= to) return 0;
  }
  return length;
}

}  // namespace

std::string visible_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = visible_bytes(text);
    if (bytes == 0) out += "\\x" + hex_digits(static_cast<uint8_t>(text.front()), 2);
    out += text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

std::string hex_digits(uint64_t value, size_t digits) {
  std::string out(digits, '0');
  for (size_t i = digits; i > 0; --i, value >>= 4) out[i - 1] = "0123456789abcdef"[value & 15];
  return out;
}

std::string hex_text(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t byte : bytes) out += hex_digits(byte, 2);
  return out;
}

std::string base64_of(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j)
      bits = bits << 8 | (j < group.size() ? static_cast<uint8_t>(group[j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += j <= group.size() ? kBase64Digits[bits >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const std::string_view digits = text.substr(0, text.size() - padding);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  unsigned bit_count = 0;
  for (const char c : digits) {
    const uint8_t value = kBase64Values[static_cast<uint8_t>(c)];
    if (value == kNoBase64Digit) return std::nullopt;
    bits = (bits << 6 | value) & 0xfff;
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    bytes += static_cast<char>(bits >> bit_count & 0xff);
  }
  // The bits after the last byte are zero.
  return (bits & ((1U << bit_count) - 1)) == 0 ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace sluice
