// Tests the models of bench/traces against published figures, and against the names, sizes and order of
// gradients that PyTorch 2.0.1 with torchvision 0.15.2 and transformers 4.38.2 reported in a run of its
// autograd engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "bench/traces/gradients.h"

namespace sluice::bench {
namespace {

Model model(const char* name) {
  return find_model(name).value();
}

uint64_t elements(const Model& m, const std::string& tensor) {
  for (const Layer& layer : m.layers) {
    for (const Tensor& t : layer.tensors) {
      if (t.name == tensor) return t.elements;
    }
  }
  ADD_FAILURE() << m.name << " has no " << tensor;
  return 0;
}

// Returns `count` names of gradients from index `begin`, in the order in which they are ready.
std::vector<std::string> names(const Model& m, size_t begin, size_t count) {
  std::vector<std::string> found;
  const std::vector<Gradient> gradients = gradients_of(m, kSecond);
  for (size_t i = begin; i < begin + count; ++i) found.push_back(gradients.at(i).name);
  return found;
}

TEST(Models, HaveThePublishedNumberOfParameters) {
  EXPECT_EQ(model("resnet-50").parameters(), 25'557'032u);
  EXPECT_EQ(model("mask-rcnn-r50-fpn").parameters(), 44'401'393u);
  EXPECT_EQ(model("bert-large").parameters(), 335'141'888u);
  EXPECT_EQ(model("gpt2-medium").parameters(), 354'823'168u);
  EXPECT_EQ(model("llama-7b").parameters(), 6'738'415'616u);
}

TEST(Models, HaveOneGradientPerTrainedTensor) {
  const std::map<std::string, size_t> tensors = {{"resnet-50", 161},
                                                 {"mask-rcnn-r50-fpn", 84},
                                                 {"bert-large", 391},
                                                 {"gpt2-medium", 292},
                                                 {"llama-7b", 291}};
  EXPECT_EQ(all_models().size(), tensors.size());
  for (const Model& m : all_models()) {
    EXPECT_EQ(m.gradient_tensors(), tensors.at(m.name)) << m.name;
    EXPECT_EQ(gradients_of(m, kSecond).size(), tensors.at(m.name)) << m.name;
  }
}

TEST(Models, LayersHaveThePublishedShapes) {
  const Model resnet = model("resnet-50");
  EXPECT_EQ(elements(resnet, "conv1.weight"), 64u * 3 * 7 * 7);
  EXPECT_EQ(elements(resnet, "layer2.0.downsample.0.weight"), 512u * 256);
  EXPECT_EQ(elements(resnet, "layer4.2.conv2.weight"), 512u * 512 * 3 * 3);
  EXPECT_EQ(elements(resnet, "layer3.5.bn3.bias"), 1024u);
  EXPECT_EQ(elements(resnet, "fc.bias"), 1000u);
  const Model mask = model("mask-rcnn-r50-fpn");
  EXPECT_EQ(elements(mask, "roi_heads.box_head.fc6.weight"), 256u * 7 * 7 * 1024);
  EXPECT_EQ(elements(mask, "backbone.fpn.inner_blocks.3.0.weight"), 2048u * 256);
  EXPECT_EQ(elements(mask, "roi_heads.mask_predictor.conv5_mask.weight"), 256u * 256 * 2 * 2);
  const Model bert = model("bert-large");
  EXPECT_EQ(elements(bert, "embeddings.word_embeddings.weight"), 30522u * 1024);
  EXPECT_EQ(elements(bert, "encoder.layer.23.intermediate.dense.weight"), 1024u * 4096);
  EXPECT_EQ(elements(bert, "encoder.layer.0.output.dense.bias"), 1024u);
  const Model gpt2 = model("gpt2-medium");
  EXPECT_EQ(elements(gpt2, "h.11.attn.c_attn.weight"), 1024u * 3072);
  EXPECT_EQ(elements(gpt2, "wpe.weight"), 1024u * 1024);
  const Model llama = model("llama-7b");
  EXPECT_EQ(elements(llama, "model.layers.31.mlp.down_proj.weight"), 11008u * 4096);
  EXPECT_EQ(elements(llama, "lm_head.weight"), 32000u * 4096);
}

TEST(Models, ForwardPassesHaveThePublishedCost) {
  // torchvision: 4.09 billion multiply-adds.
  EXPECT_DOUBLE_EQ(model("resnet-50").forward_flops(), 2.0 * 4'089'184'256);
  // Per token: every weight of a matrix once, the shared weights in the projection; scores and weighted sums
  // with all tokens.
  const double body = 2.0 * (354'823'168 - (50257 + 1024) * 1024 - 2 * 1024 - 24 * (4 * 1024 + 9 * 1024));
  const double attention = 4.0 * 24 * 1024 * 1024;
  const double head = 2.0 * 50257 * 1024;
  EXPECT_DOUBLE_EQ(model("gpt2-medium").forward_flops(), 1024 * (body + attention + head));
}

TEST(Models, GradientsHaveTheOrderOfPyTorch) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(model("resnet-50"), 0, 5), (Names{"fc.bias", "fc.weight", "layer4.2.bn3.weight",
                                                    "layer4.2.bn3.bias", "layer4.2.conv3.weight"}));
  EXPECT_EQ(names(model("mask-rcnn-r50-fpn"), 0, 2),
            (Names{"roi_heads.mask_predictor.mask_fcn_logits.weight",
                   "roi_heads.mask_predictor.mask_fcn_logits.bias"}));
  EXPECT_EQ(names(model("bert-large"), 0, 4),
            (Names{"pooler.dense.bias", "pooler.dense.weight", "encoder.layer.23.output.LayerNorm.weight",
                   "encoder.layer.23.output.LayerNorm.bias"}));
  EXPECT_EQ(names(model("bert-large"), 390, 1), (Names{"embeddings.word_embeddings.weight"}));
  EXPECT_EQ(names(model("llama-7b"), 289, 2),
            (Names{"model.layers.0.input_layernorm.weight", "model.embed_tokens.weight"}));
}

TEST(Models, SharedProjectionHasItsGradientAtTheEnd) {
  const std::vector<Gradient> gradients = gradients_of(model("gpt2-medium"), kSecond);
  EXPECT_EQ(gradients.front().name, "ln_f.weight");
  // The computation of the projection is still the first of the backward pass.
  EXPECT_GT(gradients.front().ready, kSecond / 3 + kMillisecond);
  EXPECT_EQ(gradients.back().name, "wte.weight");
}

TEST(Models, FrozenLayersHaveNoGradients) {
  const Model mask = model("mask-rcnn-r50-fpn");
  const uint64_t stem = 64 * 3 * 7 * 7;
  const uint64_t stage = 64 * 64 + 256 * 64 * 2 + 2 * (2 * 256 * 64) + 3 * (64 * 64 * 9);
  EXPECT_EQ(mask.parameters() - mask.gradient_elements(), stem + stage);
  EXPECT_EQ(gradients_of(mask, kSecond).back().name, "backbone.body.layer2.0.conv1.weight");
  EXPECT_LT(mask.backward_flops(), 2 * mask.forward_flops());
}

TEST(Models, GradientsFollowTheForwardPassInOrderAndEndWithTheStep) {
  for (const Model& m : all_models()) {
    const Nanos step = assumed_step_time(m);
    const std::vector<Gradient> gradients = gradients_of(m, step);
    const double forward = m.forward_flops() / (m.forward_flops() + m.backward_flops());
    EXPECT_GE(gradients.front().ready, static_cast<Nanos>(forward * static_cast<double>(step))) << m.name;
    EXPECT_TRUE(std::is_sorted(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
      return a.ready < b.ready;
    })) << m.name;
    EXPECT_EQ(gradients.back().ready, step) << m.name;
  }
}

TEST(Models, ReadyTimesFollowTheOperations) {
  const Model small{.name = "small",
                    .source = {},
                    .sample = {},
                    .heads = {},
                    .batch = 1,
                    .layers = {linear("a", {.in = 10, .out = 10, .rows = 1}),
                               attention("b", 5, 10),  // 2 x 2 x 5 x 5 x 10 = 1000
                               linear("c", {.in = 40, .out = 10, .rows = 1})}};
  EXPECT_DOUBLE_EQ(small.forward_flops(), 200 + 1000 + 800);
  const std::vector<Gradient> gradients = gradients_of(small, 6000);
  ASSERT_EQ(gradients.size(), 4u);
  EXPECT_EQ(gradients[0].name, "c.bias");
  EXPECT_EQ(gradients[0].ready, 2000 + 1600);
  EXPECT_EQ(gradients[1].name, "c.weight");
  EXPECT_EQ(gradients[1].ready, 2000 + 1600);
  EXPECT_EQ(gradients[3].ready, 6000);
}

TEST(Models, UnknownNameListsTheModels) {
  const auto found = find_model("alexnet");
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(
      found.error().text,
      "unknown model \"alexnet\"; the models are resnet-50, mask-rcnn-r50-fpn, bert-large, gpt2-medium, "
      "llama-7b");
}

}  // namespace
}  // namespace sluice::bench
