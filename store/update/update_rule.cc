#include "store/update/update_rule.h"

namespace sluice::store {
namespace {

constexpr std::array<std::string_view, kRuleKindCount> kNames = {"add", "sgd", "nesterov", "adamw"};

}  // namespace

std::string_view array_name(RuleKind kind, size_t array) noexcept {
  if (array == 0) return "parameters";
  if (kind == RuleKind::kNesterov) return "momentum";
  return array == 1 ? "exp_avg" : "exp_avg_sq";
}

std::string_view to_string(RuleKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<RuleKind> parse_rule_kind(std::string_view name) noexcept {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<RuleKind>(i);
  }
  return std::nullopt;
}

}  // namespace sluice::store
