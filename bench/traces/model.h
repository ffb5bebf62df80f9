// Networks whose training is replayed, built from their published architectures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/traces/layers.h"
#include "core/result.h"
#include "core/units.h"

namespace sluice::bench {

struct Model {
  std::string name;
  std::string source;         // where the architecture is published
  std::string sample;         // what one sample is: "image of 224 x 224"
  std::string heads;          // what stands on top of the body, and what is not counted
  uint32_t batch = 1;         // samples per worker and step: an assumption
  std::vector<Layer> layers;  // in order of the forward pass

  [[nodiscard]] uint64_t parameters() const;         // as published: frozen ones too
  [[nodiscard]] uint64_t gradient_elements() const;  // without the frozen ones
  [[nodiscard]] size_t gradient_tensors() const;
  // For one sample. The backward pass of what is trained costs twice its forward pass: a derivative by the
  // input and one by the weights.
  [[nodiscard]] double forward_flops() const;
  [[nodiscard]] double backward_flops() const;
};

// What an accelerator is assumed to reach over a step, where nobody says how long a step takes. Not a
// measurement: of the order that one data centre GPU of 2020 shows with 16-bit matrix units.
inline constexpr double kAssumedFlopsPerSecond = 60e12;

// Forward and backward pass of one batch at that rate, in whole milliseconds.
[[nodiscard]] Nanos assumed_step_time(const Model& model);

[[nodiscard]] Model resnet50();
[[nodiscard]] Model mask_rcnn_r50_fpn();
[[nodiscard]] Model bert_large();
[[nodiscard]] Model gpt2_medium();
[[nodiscard]] Model llama_7b();

[[nodiscard]] std::vector<Model> all_models();
// kInvalidArgument names those that there are.
[[nodiscard]] Result<Model> find_model(std::string_view name);

}  // namespace sluice::bench
