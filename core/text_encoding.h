// Bytes and numbers as text: hex digits, Base64 with padding (RFC 4648 section 4), and what a terminal may
// show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// The last `digits` lower-case hex digits of a number.
[[nodiscard]] std::string hex_digits(uint64_t value, size_t digits);
// Two lower-case hex digits for each byte.
[[nodiscard]] std::string hex_text(std::span<const uint8_t> bytes);

// The text with `\xNN` for each byte of a control character, of a character that hides others or changes
// their direction, and of no valid UTF-8: a peer's text stays on one line, and commands no terminal.
[[nodiscard]] std::string visible_text(std::string_view text);

[[nodiscard]] std::string base64_of(std::string_view bytes);
// Nothing unless `text` is exactly what base64_of() returns for some bytes.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace sluice
