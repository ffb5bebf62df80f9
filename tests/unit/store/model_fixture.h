// A small valid model for tests of the store.
#pragma once

#include "store/model/model_spec.h"

namespace sluice::store::test {

// 3 tensors with 70 + 1 + 90 elements.
inline ModelSpec small_model() {
  return {.name = "digits",
          .tensors = {{.name = "layer.0/weight", .dtype = wire::DType::kBf16, .shape = {7, 10}},
                      {.name = "scale", .dtype = wire::DType::kF32, .shape = {}},
                      {.name = "layer.1/weight", .dtype = wire::DType::kF16, .shape = {9, 2, 5}}},
          .mode = {.kind = StepKind::kSync, .quorum = 4, .grace_ms = 1500},
          .rule = {.kind = RuleKind::kNesterov, .learning_rate = 0.7, .momentum = 0.9},
          .versions = 3};
}

}  // namespace sluice::store::test
