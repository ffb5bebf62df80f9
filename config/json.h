// Reads and writes JSON. The parser and the printer take seconds to compile, so json.cc alone contains them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace sluice::config {

// Discarded (is_discarded()) if the text is no JSON. `keep` is called for each key and value, and removes a
// value by returning false.
[[nodiscard]] nlohmann::json parse_json(std::string_view text,
                                        const nlohmann::json::parser_callback_t& keep = nullptr);
// Keeps the order of the keys.
[[nodiscard]] nlohmann::ordered_json parse_ordered_json(std::string_view text);
// Why a text would take much more memory than its own once parsed, or the stack once printed: "is nested
// deeper than 16 levels", "has more than 100 values". Empty: it does not. Looks at brackets and commas only.
[[nodiscard]] std::string json_excess(std::string_view text, size_t max_values);
// For JSON of a peer: discarded also if json_excess() says why.
[[nodiscard]] nlohmann::json parse_limited_json(std::string_view text, size_t max_values = SIZE_MAX);

// In one line, or with `indent` spaces for each level. Invalid UTF-8 is replaced.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace sluice::config
