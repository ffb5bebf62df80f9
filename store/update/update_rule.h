// Struct UpdateRule says how a step makes the parameters of version v + 1 from version v and the mean delta.
// update_step.h has the formulas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice::store {

enum class RuleKind : uint8_t { kAdd = 0, kSgd = 1, kNesterov = 2, kAdamW = 3 };
inline constexpr size_t kRuleKindCount = 4;

// Fields that the kind does not use are 0.
struct UpdateRule {
  RuleKind kind = RuleKind::kAdd;
  double learning_rate = 0;  // all but kAdd
  double momentum = 0;       // kNesterov
  double beta1 = 0;          // kAdamW, as the fields below
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

// A version holds up to this many arrays of the size of the parameters.
inline constexpr size_t kMaxArrays = 3;

// The arrays of a version: the parameters, then the state of the rule. kNesterov: momentum. kAdamW: exp_avg
// and exp_avg_sq, named as in PyTorch.
[[nodiscard]] constexpr size_t array_count(RuleKind kind) noexcept {
  switch (kind) {
    case RuleKind::kAdd:
    case RuleKind::kSgd: return 1;
    case RuleKind::kNesterov: return 2;
    case RuleKind::kAdamW: return 3;
  }
  return 0;
}
// "parameters", "momentum", ...; `array` is less than array_count().
[[nodiscard]] std::string_view array_name(RuleKind kind, size_t array) noexcept;

// "add", "sgd", "nesterov", "adamw".
[[nodiscard]] std::string_view to_string(RuleKind kind) noexcept;
[[nodiscard]] std::optional<RuleKind> parse_rule_kind(std::string_view name) noexcept;

// A numeric field of a rule with its name in JSON and its bounds, which a value may equal.
struct RuleField {
  std::string_view name;
  double UpdateRule::*value;
  double least;
  double most;
  uint8_t kinds;  // bit k: RuleKind k uses the field
  [[nodiscard]] constexpr bool used_by(RuleKind kind) const noexcept {
    return (kinds >> static_cast<uint8_t>(kind) & 1) != 0;
  }
};
// The bounds keep all coefficients finite in f32, and bias corrections away from 0.
inline constexpr double kBelowOne = 1 - 1e-9;
inline constexpr std::array<RuleField, 6> kRuleFields = {{
    {"learning_rate", &UpdateRule::learning_rate, 0, 1e6, 0b1110},
    {"momentum", &UpdateRule::momentum, 0, kBelowOne, 0b0100},
    {"beta1", &UpdateRule::beta1, 0, kBelowOne, 0b1000},
    {"beta2", &UpdateRule::beta2, 0, kBelowOne, 0b1000},
    {"epsilon", &UpdateRule::epsilon, 0, 1, 0b1000},
    {"weight_decay", &UpdateRule::weight_decay, 0, 1e6, 0b1000},
}};

}  // namespace sluice::store
