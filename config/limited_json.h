// JSON of a peer.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace sluice::config {

// Leaves out what is nested deeper than in any message: printing "[[[[..." would need the stack for each
// level. Discarded if the text is no JSON.
[[nodiscard]] inline nlohmann::json parse_limited_json(std::string_view text) {
  using Json = nlohmann::json;
  constexpr int kMaxDepth = 16;
  const auto is_kept = [](int depth, Json::parse_event_t, Json&) { return depth < kMaxDepth; };
  return Json::parse(text, is_kept, /*allow_exceptions=*/false);
}

}  // namespace sluice::config
