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

json parse_limited_json(std::string_view text) {
  constexpr int kMaxDepth = 16;
  return parse_json(text, [](int depth, json::parse_event_t, json&) { return depth < kMaxDepth; });
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace sluice::config
