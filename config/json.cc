#include "config/json.h"

namespace sluice::config {

using nlohmann::json;
using nlohmann::ordered_json;

json parse_json(std::string_view text, const json::parser_callback_t& keep) {
  return json::parse(text, keep, /*allow_exceptions=*/false);
}

ordered_json parse_ordered_json(std::string_view text) {
  return ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_excess(std::string_view text, size_t max_values) {
  constexpr size_t kMaxDepth = 16;
  size_t depth = 0, values = 1;
  bool is_in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string) {
      i += c == '\\' ? 1 : 0;
      continue;
    }
    const bool opens = c == '[' || c == '{';
    if (opens && ++depth > kMaxDepth) return "is nested deeper than " + std::to_string(kMaxDepth) + " levels";
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if ((opens || c == ',') && ++values > max_values)
      return "has more than " + std::to_string(max_values) + " values";
  }
  return {};
}

json parse_limited_json(std::string_view text, size_t max_values) {
  return json_excess(text, max_values).empty() ? parse_json(text) : json(json::value_t::discarded);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace sluice::config
