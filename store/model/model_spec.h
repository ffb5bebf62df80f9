// Struct ModelSpec is what the creator of a model chooses: its name, its tensors and the rules of its steps.
// Constant from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "store/update/update_rule.h"
#include "wire/dtype.h"
#include "wire/sha256.h"

namespace sluice::store {

// Bounds: a request comes from a peer.
inline constexpr size_t kMaxModelName = 64;
inline constexpr size_t kMaxTensors = 65536;
inline constexpr size_t kMaxTensorName = 256;
inline constexpr size_t kMaxDimensions = 8;
inline constexpr uint64_t kMaxElements = uint64_t{1} << 42;  // of all tensors together
inline constexpr uint32_t kMaxQuorum = 65536;
inline constexpr uint64_t kMaxGraceMs = 86'400'000;
inline constexpr uint64_t kMaxStaleness = 1'000'000;
inline constexpr uint32_t kMinVersions = 1;
inline constexpr uint32_t kMaxVersions = 64;

struct TensorSpec {
  std::string name;
  // f32, f16 or bf16. The type that workers and snapshots see; versions are f32.
  wire::DType dtype = wire::DType::kF32;
  std::vector<uint64_t> shape;  // empty: a scalar

  [[nodiscard]] uint64_t elements() const noexcept;  // of a valid shape
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

enum class StepKind : uint8_t { kSync = 0, kAsync = 1, kBounded = 2 };
inline constexpr size_t kStepKindCount = 3;
// What happens to a push that is based on a version more than `staleness` steps ago.
enum class StalePush : uint8_t { kRefuse = 0, kScale = 1 };
inline constexpr size_t kStalePushCount = 2;

// Which pushes a step contains. Fields that the kind does not use are 0.
struct StepMode {
  StepKind kind = StepKind::kSync;
  uint32_t quorum = 0;     // kSync: pushes that a step needs
  uint64_t grace_ms = 0;   // kSync: the wait for further pushes after the quorum
  uint64_t staleness = 0;  // kBounded
  StalePush stale = StalePush::kRefuse;
  friend bool operator==(const StepMode&, const StepMode&) = default;
};

struct ModelSpec {
  std::string name;
  std::vector<TensorSpec> tensors;
  StepMode mode;
  UpdateRule rule;
  uint32_t versions = 2;  // committed versions that owners keep

  [[nodiscard]] uint64_t elements() const noexcept;  // of all tensors
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Checks all bounds. The error names the first bad field, its value and what is expected:
// "mode.quorum is 0; expected 1 to 65536".
[[nodiscard]] Result<void> validate(const ModelSpec& spec);

// The first difference between two specifications of one name, as a sentence: "rule.momentum is 0.9 in the
// existing model, and 0.8 in the request". Empty if they are equal. Both are valid.
[[nodiscard]] std::string difference(const ModelSpec& existing, const ModelSpec& requested);

// SHA-256 of all fields of a valid specification. Files hold it, so its input must not change.
[[nodiscard]] wire::Digest fingerprint(const ModelSpec& spec);

[[nodiscard]] std::string_view to_string(StepKind kind) noexcept;     // "sync", "async", "bounded"
[[nodiscard]] std::string_view to_string(StalePush policy) noexcept;  // "refuse", "scale"
[[nodiscard]] std::optional<StepKind> parse_step_kind(std::string_view name) noexcept;
[[nodiscard]] std::optional<StalePush> parse_stale_push(std::string_view name) noexcept;

// "[2, 3]".
[[nodiscard]] std::string shape_text(const std::vector<uint64_t>& shape);

}  // namespace sluice::store
