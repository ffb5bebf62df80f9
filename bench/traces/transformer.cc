// Transformer models. The tensors have the names of the published checkpoints.
#include <string>
#include <utility>

#include "bench/traces/model.h"

namespace sluice::bench {

// Devlin et al., "BERT" (2018), large: 24 layers, width 1024, 16 heads, inner width 4096, an uncased
// vocabulary of 30522 tokens.
Model bert_large() {
  constexpr int kLayers = 24;
  constexpr uint64_t kWidth = 1024;
  constexpr uint64_t kInner = 4 * kWidth;
  constexpr uint64_t kTokens = 512;
  std::vector<Layer> layers;
  layers.push_back(embedding("embeddings.word_embeddings", 30522, kWidth));
  layers.push_back(embedding("embeddings.token_type_embeddings", 2, kWidth));
  layers.push_back(embedding("embeddings.position_embeddings", 512, kWidth));
  layers.push_back(normalization("embeddings.LayerNorm", kWidth));
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "encoder.layer." + std::to_string(i) + ".";
    for (const char* part : {"query", "key", "value"})
      layers.push_back(
          linear(name + "attention.self." + part, {.in = kWidth, .out = kWidth, .rows = kTokens}));
    layers.push_back(attention(name + "attention.self", kTokens, kWidth));
    layers.push_back(linear(name + "attention.output.dense", {.in = kWidth, .out = kWidth, .rows = kTokens}));
    layers.push_back(normalization(name + "attention.output.LayerNorm", kWidth));
    layers.push_back(linear(name + "intermediate.dense", {.in = kWidth, .out = kInner, .rows = kTokens}));
    layers.push_back(linear(name + "output.dense", {.in = kInner, .out = kWidth, .rows = kTokens}));
    layers.push_back(normalization(name + "output.LayerNorm", kWidth));
  }
  layers.push_back(linear("pooler.dense", {.in = kWidth, .out = kWidth, .rows = 1}));
  return {.name = "bert-large",
          .source = "Devlin et al. 2018 (arXiv 1810.04805); bert-large-uncased",
          .sample = "512 tokens",
          .heads = "pooler; the heads of pre-training are not counted",
          .batch = 16,
          .layers = std::move(layers)};
}

// Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), 24 layers: width 1024, 1024
// tokens, a vocabulary of 50257. The output projection shares the weights of the embedding. Their gradient is
// complete only at the end of the backward pass, at the position of the embedding.
Model gpt2_medium() {
  constexpr int kLayers = 24;
  constexpr uint64_t kWidth = 1024;
  constexpr uint64_t kInner = 4 * kWidth;
  constexpr uint64_t kTokens = 1024;
  constexpr uint64_t kWords = 50257;
  std::vector<Layer> layers;
  layers.push_back(embedding("wte", kWords, kWidth));
  layers.push_back(embedding("wpe", kTokens, kWidth));
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "h." + std::to_string(i) + ".";
    layers.push_back(normalization(name + "ln_1", kWidth));
    layers.push_back(linear(name + "attn.c_attn", {.in = kWidth, .out = 3 * kWidth, .rows = kTokens}));
    layers.push_back(attention(name + "attn", kTokens, kWidth));
    layers.push_back(linear(name + "attn.c_proj", {.in = kWidth, .out = kWidth, .rows = kTokens}));
    layers.push_back(normalization(name + "ln_2", kWidth));
    layers.push_back(linear(name + "mlp.c_fc", {.in = kWidth, .out = kInner, .rows = kTokens}));
    layers.push_back(linear(name + "mlp.c_proj", {.in = kInner, .out = kWidth, .rows = kTokens}));
  }
  layers.push_back(normalization("ln_f", kWidth));
  Layer head = linear("lm_head", {.in = kWidth, .out = kWords, .rows = kTokens, .bias = false});
  head.tensors.clear();  // shares the weights of wte
  layers.push_back(std::move(head));
  return {.name = "gpt2-medium",
          .source = "Radford et al. 2019; gpt2-medium",
          .sample = "1024 tokens",
          .heads = "output projection tied to the word embedding",
          .batch = 8,
          .layers = std::move(layers)};
}

// Touvron et al., "LLaMA" (2023), 7B: 32 layers, width 4096, 32 heads, 2048 tokens, a vocabulary of 32000.
// The inner width of the gated feed-forward network is 2/3 of 4 times the width, rounded up to a multiple of
// 256.
Model llama_7b() {
  constexpr int kLayers = 32;
  constexpr uint64_t kWidth = 4096;
  constexpr uint64_t kInner = (4 * kWidth * 2 / 3 + 255) / 256 * 256;
  static_assert(kInner == 11008);
  constexpr uint64_t kTokens = 2048;
  constexpr uint64_t kWords = 32000;
  std::vector<Layer> layers;
  const auto add_linear = [&layers](const std::string& name, uint64_t in, uint64_t out) {
    layers.push_back(linear(name, {.in = in, .out = out, .rows = kTokens, .bias = false}));
  };
  layers.push_back(embedding("model.embed_tokens", kWords, kWidth));
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".";
    layers.push_back(normalization(name + "input_layernorm", kWidth, false));
    for (const char* part : {"q_proj", "k_proj", "v_proj"})
      add_linear(name + "self_attn." + part, kWidth, kWidth);
    layers.push_back(attention(name + "self_attn", kTokens, kWidth));
    add_linear(name + "self_attn.o_proj", kWidth, kWidth);
    layers.push_back(normalization(name + "post_attention_layernorm", kWidth, false));
    add_linear(name + "mlp.gate_proj", kWidth, kInner);
    add_linear(name + "mlp.up_proj", kWidth, kInner);
    add_linear(name + "mlp.down_proj", kInner, kWidth);
  }
  layers.push_back(normalization("model.norm", kWidth, false));
  add_linear("lm_head", kWidth, kWords);
  return {.name = "llama-7b",
          .source = "Touvron et al. 2023 (arXiv 2302.13971)",
          .sample = "2048 tokens",
          .heads = "separate output projection",
          .batch = 1,
          .layers = std::move(layers)};
}

}  // namespace sluice::bench
