// Lane with sparse payloads (protocol.md section 9).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lane_test_bed.h"
#include "wire/payload/sparse.h"

namespace sluice::test {
namespace {

constexpr uint32_t kSparseCount = 1000;

// 16 blocks, of which the first and the last are not zero.
std::vector<float> values_of(uint32_t rank) {
  std::vector<float> values(kSparseCount, 0.F);
  values[3] = static_cast<float>(rank + 1);
  values[kSparseCount - 1] = -static_cast<float>(rank + 1);
  return values;
}

struct SparseContribution {
  bool sparse = true;
  bool accepts = true;
  uint32_t expanded = kSparseCount * sizeof(float);
  bool has_extension = true;
  int damaged_byte = -1;  // of the payload, from its end
};

Status contribute_sparse(LaneTestBed& bed, uint32_t rank, uint64_t sequence, const SparseContribution& c) {
  std::vector<std::byte> payload = LaneTestBed::bytes(values_of(rank));
  wire::FrameHeader h = bed.header(sequence, kSparseCount);
  std::vector<std::byte> extensions(wire::kSmallExtensionBytes);
  wire::encode_extension(wire::OpInfo{.count = kSparseCount},
                         std::span(extensions).first<wire::kSmallExtensionBytes>());
  if (c.accepts) h.flags |= wire::kFlagAcceptsSparse;
  if (c.sparse) {
    h.encoding = wire::Encoding::kSparse;
    payload.resize(wire::encode_sparse(payload, wire::DType::kF32, payload.data()));
    if (c.has_extension) {
      extensions.resize(2 * wire::kSmallExtensionBytes);
      wire::encode_extension(wire::Expanded{.bytes = c.expanded},
                             std::span(extensions).last<wire::kSmallExtensionBytes>());
    }
    if (c.damaged_byte >= 0)
      payload[payload.size() - 1 - static_cast<size_t>(c.damaged_byte)] ^= std::byte{2};
  }
  return bed.ranks[rank]->send(h, payload, extensions);
}

std::vector<float> sum_of(uint32_t ranks) {
  std::vector<float> sum = values_of(0);
  for (uint32_t r = 1; r < ranks; ++r) {
    const auto values = values_of(r);
    for (size_t i = 0; i < kSparseCount; ++i) sum[i] += values[i];
  }
  return sum;
}

TEST(LaneSparse, PlainAndSparseContributionsHaveOneSum) {
  for (const uint32_t n : {1U, 3U, 20U}) {
    LaneTestBed bed(n);
    bed.commit_all();
    for (uint64_t sequence = 0; sequence < 9; ++sequence) {
      const bool all_accept = sequence % 3 != 0;
      for (uint32_t r = 0; r < n; ++r) {
        const bool accepts = all_accept || r != sequence % n;
        ASSERT_TRUE(
            contribute_sparse(bed, r, sequence, {.sparse = (r + sequence) % 2 == 0, .accepts = accepts})
                .ok());
      }
      bed.settle();
      for (uint32_t r = 0; r < n; ++r) {
        ASSERT_EQ(bed.results(r).size(), sequence + 1);
        auto result = bed.results(r).back();
        EXPECT_EQ(result.header.encoding, all_accept ? wire::Encoding::kSparse : wire::Encoding::kPlain);
        EXPECT_EQ(result.header.payload_crc, crc32c(result.payload));
        if (all_accept) {
          ASSERT_EQ(wire::find_expanded(result.extensions)->bytes, kSparseCount * sizeof(float));
          const size_t length = result.payload.size();
          EXPECT_LT(length, 600U);
          result.payload.resize(kSparseCount * sizeof(float));
          ASSERT_TRUE(
              wire::expand_sparse(result.payload.data(), length, result.payload.size(), wire::DType::kF32));
        }
        EXPECT_EQ(LaneTestBed::floats(result.payload), sum_of(n));
        EXPECT_TRUE(wire::find_result_info(result.extensions).has_value());
      }
    }
  }
}

TEST(LaneSparse, ASparseResultIsSentAgain) {
  LaneTestBed bed(2, 4, 4096, /*fault_tolerant=*/true);
  bed.commit_all();
  bed.block(1);
  for (uint32_t r = 0; r < 2; ++r) ASSERT_TRUE(contribute_sparse(bed, r, 0, {}).ok());
  bed.settle();
  const auto first = bed.results(0);
  ASSERT_EQ(first.size(), 1U);
  bed.reconnect(1);
  bed.block(1, false);
  bed.settle();
  bed.send_resume(1, 0);
  bed.settle();
  const auto again = bed.results(1);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].payload, first[0].payload);
  EXPECT_EQ(again[0].extensions, first[0].extensions);
  EXPECT_EQ(again[0].header.encoding, wire::Encoding::kSparse);
}

TEST(LaneSparse, RefusesMalformedPayloads) {
  const struct {
    const char* name;
    SparseContribution contribution;
    Errc code;
  } cases[] = {
      {"no extension", {.has_extension = false}, Errc::kBadExtension},
      {"not shorter than the payload", {.expanded = 300}, Errc::kBadLength},
      {"half an element", {.expanded = 3998}, Errc::kBadLength},
      {"above the slot", {.expanded = 8192}, Errc::kBadLength},
      {"no bytes", {.expanded = 0}, Errc::kBadLength},
      {"another number of blocks", {.expanded = 3072}, Errc::kBadField},
      {"a block that is not there", {.damaged_byte = 1}, Errc::kBadField},
  };
  for (const auto& c : cases) {
    LaneTestBed bed(2);
    bed.commit_all();
    ASSERT_TRUE(contribute_sparse(bed, 1, 0, c.contribution).ok()) << c.name;
    bed.settle();
    EXPECT_EQ(bed.ranks[1]->endpoint, nullptr) << c.name;
    const auto events = bed.events();
    ASSERT_EQ(events.size(), 1U) << c.name;
    EXPECT_EQ(events[0].code, c.code) << c.name;
  }
}

}  // namespace
}  // namespace sluice::test
