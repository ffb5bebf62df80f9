// The order in which the floats of a session's ranks are added and multiplied (protocol.md section 7).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::wire {

enum class SumOrder : uint8_t {
  kTree,    // a balanced binary tree over the ranks
  kGroups,  // of releases before the tree: rank order within groups of eight, then the groups in order
};

// The name in options and in the status.
[[nodiscard]] constexpr std::string_view to_string(SumOrder order) noexcept {
  return order == SumOrder::kTree ? "tree" : "groups";
}
[[nodiscard]] constexpr std::optional<SumOrder> parse_sum_order(std::string_view name) noexcept {
  if (name == "tree") return SumOrder::kTree;
  if (name == "groups") return SumOrder::kGroups;
  return std::nullopt;
}

}  // namespace sluice::wire
