#include "gpu_client/pipeline/segments.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace sluice::pipeline {
namespace {

// Every unit is in one band, of at most `most` units, and the bands are full as far as whole bands allow.
void expect_divided(const std::vector<uint64_t>& units, uint64_t most) {
  const std::vector<Band> bands = divide_into_bands(units, most);
  std::vector<uint64_t> covered(units.size());
  uint64_t first = 0;
  for (const Band& band : bands) {
    uint64_t count = 0;
    size_t active = 0;
    for (uint32_t p = 0; p < units.size(); ++p) {
      const uint64_t in_band = band.units_of(p, units[p]);
      if (in_band == 0) continue;
      ASSERT_EQ(covered[p], band.begin) << "part " << p;
      covered[p] += in_band;
      count += in_band;
      ++active;
    }
    ASSERT_EQ(band.count, count);
    ASSERT_EQ(band.first, first);
    ASSERT_GT(count, 0U);
    ASSERT_LE(count, most);
    // There was no room for one more unit of each part, or the parts end.
    const bool is_narrow = band.first_part > 0 || band.end_part < units.size();
    if (!is_narrow && &band != &bands.back()) {
      ASSERT_GT(count + active, most);
    }
    first += count;
  }
  EXPECT_EQ(covered, units);
}

TEST(Segments, CoverTheUnitsOfAllParts) {
  expect_divided({}, 10);
  expect_divided({0}, 10);
  expect_divided({0, 0, 0}, 1);
  expect_divided({100}, 7);
  expect_divided({100, 100, 100}, 30);
  expect_divided({1'000'000, 0, 1}, 4096);
  expect_divided({5, 5, 5, 5, 5}, 3);  // more parts than units
  expect_divided({~uint64_t{0} >> 8}, ~uint64_t{0});
  std::minstd_rand random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint64_t> units(1 + random() % 20);
    for (uint64_t& u : units) u = random() % 4 == 0 ? 0 : random() % (random() % 2 == 0 ? 9 : 2000);
    expect_divided(units, 1 + random() % 300);
  }
}

TEST(Segments, OfOnePartAreItsConsecutivePieces) {
  const std::vector<uint64_t> units{25};
  const std::vector<Band> bands = divide_into_bands(units, 10);
  ASSERT_EQ(bands.size(), 3U);
  EXPECT_EQ(bands[2].begin, 20U);
  EXPECT_EQ(bands[2].count, 5U);
}

// Blocks have one owner: in a segment each part begins with a block, so partial blocks end a run.
TEST(Segments, RunsEndBehindPartialBlocksAndGaps) {
  std::vector<std::byte> memory(8192);
  const std::byte* const send = memory.data();
  Tensor tensor{
      .send = send, .recv = memory.data(), .count = 1200, .counts = {512, 300, 0, 388}, .stream = {}};
  tensor.kind = wire::Kind::kReduceScatter;
  tensor.cast = WireCast::kMxfp8;
  std::vector<Batch> batches = make_batches({tensor}, 0, 3);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].units(), 2U + 2 + 0 + 2);
  std::vector<BufferRange> ranges;
  std::vector<pipeline::Run> runs;
  append_runs(batches[0], {.end = 2, .end_part = 4, .count = 6}, Side::kSend, ranges, runs);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].range_count, 2U);
  EXPECT_EQ(runs[0].units, 4U);
  EXPECT_EQ(runs[1].first, 4U);
  EXPECT_EQ(runs[1].elements, 388U);
  EXPECT_EQ(ranges[2].send, send + 812 * sizeof(float));
  ranges.clear();
  runs.clear();
  append_runs(batches[0], {.begin = 1, .end = 2, .end_part = 4, .count = 3}, Side::kRecv, ranges, runs);
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].first, 2U);
  EXPECT_EQ(ranges[0].recv, memory.data() + 256 * sizeof(float));
  EXPECT_EQ(ranges[0].count, 132U);
  // In an all-gather in place, this rank's part stays where it is.
  tensor.kind = wire::Kind::kAllGather;
  tensor.cast = WireCast::kNone;
  tensor.send = tensor.recv + 512 * sizeof(float);
  tensor.staged = true;
  batches = make_batches({tensor}, 0, 1);
  ranges.clear();
  runs.clear();
  append_runs(batches[0], {.end = 1000, .end_part = 4, .count = 1200}, Side::kRecv, ranges, runs);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].elements, 512U);
  EXPECT_EQ(runs[1].first, 812U);
  EXPECT_TRUE(batches[0].has_result());
}

// The exponents of a batch fit into 16 KiB, so larger operations are several batches, of all ranks' parts.
TEST(Segments, LargeOperationsAreSeveralBatches) {
  std::byte memory{};
  Tensor tensor{.send = &memory, .recv = &memory, .count = 3 * kMaxBatchElements, .stream = {}};
  tensor.counts = {2 * kMaxBatchElements, kMaxBatchElements};
  tensor.kind = wire::Kind::kReduceScatter;
  EXPECT_EQ(make_batches({tensor}, 0, 0).size(), 1U) << "in place the network has the whole operation";
  tensor.staged = true;
  tensor.cast = WireCast::kScaledF16;
  const std::vector<Batch> batches = make_batches({tensor}, 0, 0);
  EXPECT_EQ(batches.size(), 3U);
  uint64_t count = 0;
  for (const Batch& batch : batches) {
    EXPECT_LE(batch.count, kMaxBatchElements);
    EXPECT_EQ(batch.parts.size(), 2U);
    count += batch.count;
  }
  EXPECT_EQ(count, tensor.count);
}

}  // namespace
}  // namespace sluice::pipeline
