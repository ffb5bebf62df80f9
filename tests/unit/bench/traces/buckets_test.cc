#include "bench/traces/buckets.h"

#include <gtest/gtest.h>

namespace sluice::bench {
namespace {

constexpr uint64_t kF32 = 4;
constexpr uint64_t kBf16 = 2;

using Buckets = std::vector<Bucket>;

// Makes gradients from pairs of elements and ready time in microseconds.
std::vector<Gradient> gradients(const std::vector<std::pair<uint64_t, Nanos>>& list) {
  std::vector<Gradient> all;
  for (const auto& [elements, us] : list)
    all.push_back({.name = {}, .elements = elements, .ready = us * kMicrosecond});
  return all;
}

std::vector<uint64_t> sizes(const Buckets& buckets) {
  std::vector<uint64_t> all;
  for (const Bucket& bucket : buckets) all.push_back(bucket.bytes);
  return all;
}

TEST(DdpBuckets, GradientThatReachesTheCapCompletesTheBucket) {
  const auto g = gradients({{10, 1}, {15, 2}, {1, 3}, {20, 4}, {29, 5}, {1, 6}, {90, 7}, {3, 8}});
  EXPECT_EQ(ddp_buckets(g, kF32, {.first_cap = 100, .cap = 200}),
            (Buckets{{2, 100},    // 40 + 60: equals the cap
                     {5, 200},    // 4 + 80 + 116
                     {7, 364},    // 4 + 360: far above the cap
                     {8, 12}}));  // the rest
  EXPECT_EQ(sizes(ddp_buckets(g, kBf16, {.first_cap = 100, .cap = 200})),
            (std::vector<uint64_t>{150, 182 + 6}));
}

TEST(DdpBuckets, LastGradientCompletesTheLastBucket) {
  EXPECT_EQ(ddp_buckets(gradients({{25, 1}, {50, 9}}), kF32, {.first_cap = 100, .cap = 200}),
            (Buckets{{1, 100}, {9, 200}}));
}

TEST(HorovodBuckets, EachCycleTakesTheReadyGradients) {
  const auto g = gradients({{1, 200}, {2, 999}, {3, 1000}, {4, 1001}, {5, 4500}, {6, 4600}});
  EXPECT_EQ(horovod_buckets(g, kF32, {.threshold = 1000, .cycle = kMillisecond}),
            (Buckets{{1000, 24}, {2000, 16}, {5000, 44}}));
}

TEST(HorovodBuckets, StayWithinTheThreshold) {
  const auto g = gradients({{10, 1}, {15, 1}, {1, 1}, {50, 1}, {1, 1}, {24, 1}, {1, 2}});
  EXPECT_EQ(horovod_buckets(g, kF32, {.threshold = 100, .cycle = kMillisecond}),
            (Buckets{{1000, 100}, {1000, 4}, {1000, 200}, {1000, 100}, {1000, 4}}));
  EXPECT_EQ(sizes(horovod_buckets(g, kF32, {.threshold = 0, .cycle = kMillisecond})),
            sizes(single_buckets(g, kF32)));
}

TEST(HorovodBuckets, WithoutCycleFuseGradientsReadyAtTheSameTime) {
  const auto g = gradients({{1, 200}, {2, 200}, {3, 201}});
  EXPECT_EQ(horovod_buckets(g, kF32, {.threshold = 100, .cycle = 0}), (Buckets{{200, 12}, {201, 12}}));
}

TEST(SingleBuckets, AreSingleGradientsNotBeforeTheyAreReady) {
  const std::vector<Gradient> g = {{.name = {}, .elements = 3, .ready = 1},
                                   {.name = {}, .elements = 5, .ready = 2000}};
  EXPECT_EQ(single_buckets(g, kBf16), (Buckets{{1, 6}, {2, 10}}));
}

// The expected sizes come from the bucket assignment of PyTorch 2.0.1 for its own gradient order.
TEST(DdpBuckets, OfModelsMatchPyTorch) {
  const auto bucket_sizes = [](const char* model, uint64_t element_bytes, const DdpOptions& options) {
    return sizes(ddp_buckets(gradients_of(find_model(model).value(), kSecond), element_bytes, options));
  };
  EXPECT_EQ(bucket_sizes("resnet-50", kF32, {}),
            (std::vector<uint64_t>{8196000, 31502336, 26255360, 26550272, 9724160}));
  EXPECT_EQ(bucket_sizes("resnet-50", kBf16, {}), (std::vector<uint64_t>{4098000, 28878848, 18137216}));
  EXPECT_EQ(bucket_sizes("mask-rcnn-r50-fpn", kF32, {}),
            (std::vector<uint64_t>{1142124, 66890524, 29384764, 30408704, 28049408, 20840448}));
  const DdpOptions small{.first_cap = 5 << 20, .cap = 5 << 20};
  EXPECT_EQ(bucket_sizes("bert-large", kF32, {}).size(), 38u);
  EXPECT_EQ(bucket_sizes("bert-large", kF32, small).size(), 97u);
  EXPECT_EQ(bucket_sizes("gpt2-medium", kF32, {}).size(), 37u);
  EXPECT_EQ(bucket_sizes("gpt2-medium", kBf16, {}).size(), 21u);
  EXPECT_EQ(bucket_sizes("llama-7b", kBf16, {}).size(), 226u);
}

TEST(Buckets, OfEveryModelCoverAllGradientsInOrder) {
  for (const Model& model : all_models()) {
    const Nanos step = assumed_step_time(model);
    const std::vector<Gradient> g = gradients_of(model, step);
    for (const Buckets& buckets :
         {ddp_buckets(g, kF32, {}), horovod_buckets(g, kF32, {}), single_buckets(g, kF32)}) {
      const Trace trace{.comments = {}, .buckets = buckets};
      EXPECT_EQ(trace.bytes(), kF32 * model.gradient_elements()) << model.name;
      for (size_t i = 1; i < buckets.size(); ++i) EXPECT_GE(buckets[i].ready_us, buckets[i - 1].ready_us);
      EXPECT_GE(trace.compute_us() * kMicrosecond, static_cast<uint64_t>(step)) << model.name;
      EXPECT_LE(trace.compute_us() * kMicrosecond, static_cast<uint64_t>(step + kMillisecond)) << model.name;
    }
  }
}

}  // namespace
}  // namespace sluice::bench
