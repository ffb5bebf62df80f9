// Struct Model describes a network whose training is replayed. The models follow the published architectures.
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
  std::string source;         // publication of the architecture
  std::string sample;         // description of a sample, for example "image of 224 x 224"
  std::string heads;          // heads of the network, and excluded parts
  uint32_t batch = 1;         // samples per worker and step, an assumption
  std::vector<Layer> layers;  // in order of the forward pass

  [[nodiscard]] uint64_t parameters() const;         // as published, including frozen layers
  [[nodiscard]] uint64_t gradient_elements() const;  // without frozen layers
  [[nodiscard]] size_t gradient_tensors() const;
  // Per sample. The backward pass of a trained layer costs twice its forward pass: one derivative with
  // respect to the input and one with respect to the weights.
  [[nodiscard]] double forward_flops() const;
  [[nodiscard]] double backward_flops() const;
};

// The assumed rate of an accelerator when the user does not state the time of a step. Not a measurement: the
// order of magnitude of a data center GPU of 2020 with 16-bit matrix units.
inline constexpr double kAssumedFlopsPerSecond = 60e12;

// Returns the time of the forward and backward pass of one batch at that rate, in whole milliseconds.
[[nodiscard]] Nanos assumed_step_time(const Model& model);

[[nodiscard]] Model resnet50();
[[nodiscard]] Model mask_rcnn_r50_fpn();
[[nodiscard]] Model bert_large();
[[nodiscard]] Model gpt2_medium();
[[nodiscard]] Model llama_7b();

[[nodiscard]] std::vector<Model> all_models();
// Errors: kInvalidArgument; the text lists the known models.
[[nodiscard]] Result<Model> find_model(std::string_view name);

}  // namespace sluice::bench
