// Reads and writes JSON. The parser and the printer take seconds to compile, so json.cc alone contains them.
#pragma once

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
// For JSON of a peer: leaves out what is nested deeper than in any message, because printing "[[[[..." would
// need the stack for each level.
[[nodiscard]] nlohmann::json parse_limited_json(std::string_view text);

// In one line, or with `indent` spaces for each level. Invalid UTF-8 is replaced.
[[nodiscard]] std::string json_text(const nlohmann::json& value, int indent = -1);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace sluice::config
