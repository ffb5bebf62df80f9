// The JSON form of a ModelSpec, in requests and in the coordinator:
//
//   {"name": "m", "versions": 2,
//    "mode": {"kind": "sync", "quorum": 4, "grace_ms": 1000},
//    "rule": {"kind": "nesterov", "learning_rate": 0.7, "momentum": 0.9},
//    "tensors": [{"name": "w", "dtype": "bf16", "shape": [64, 3]}]}
//
// All fields of a kind are required, and no others are allowed: a misspelled field must not select a default.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/result.h"
#include "store/model/model_spec.h"

namespace sluice::store {

// The longest text of a model, and the most values that it has.
inline constexpr size_t kMaxModelText = size_t{8} << 20;
inline constexpr size_t kMaxModelValues = kMaxTensors * (kMaxDimensions + 4) + 100;

// A valid specification, or an error that names the field, its value and what is expected.
[[nodiscard]] Result<ModelSpec> parse_model(std::string_view text);

// `spec` is valid. Equal specifications have equal texts.
[[nodiscard]] std::string model_text(const ModelSpec& spec);

}  // namespace sluice::store
