// Lane with chunks that have an owner: reduce-scatter, reduce, all-gather and broadcast (protocol.md section
// 9).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/lane_test_bed.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;
using wire::Kind;

constexpr uint32_t kCount = 100;

struct Contribution {
  Kind kind = Kind::kReduce;
  uint32_t owner = 0;
  float value = 0;
  bool has_payload = true;
  uint16_t flags = 0;
  uint32_t chunk_bytes = kCount * sizeof(float);
  bool has_owner_extension = true;
};

Status contribute(LaneTestBed& bed, uint32_t rank, uint64_t sequence, const Contribution& c) {
  std::vector<std::byte> extensions((c.has_owner_extension ? 2 : 1) * wire::kSmallExtensionBytes);
  const std::span area(extensions);
  wire::encode_extension(wire::OpInfo{.count = kCount}, area.first<wire::kSmallExtensionBytes>());
  if (c.has_owner_extension) {
    wire::encode_extension(wire::ChunkOwner{.owner = c.owner, .chunk_bytes = c.chunk_bytes},
                           area.last<wire::kSmallExtensionBytes>());
  }
  wire::FrameHeader h = bed.header(sequence, kCount);
  h.kind = c.kind;
  h.flags = c.flags;
  h.fingerprint = wire::fingerprint(kCount, h.wire_dtype, h.op, c.kind, c.owner);
  const std::vector<float> values(c.has_payload ? kCount : 0, c.value);
  return bed.ranks[rank]->send(h, LaneTestBed::bytes(values), extensions);
}

TEST(LaneKinds, SendsASumToItsOwnerAlone) {
  for (const Kind kind : {Kind::kReduceScatter, Kind::kReduce}) {
    for (const uint32_t n : {1U, 3U, 20U}) {
      LaneTestBed bed(n);
      bed.commit_all();
      for (uint64_t sequence = 0; sequence < 9; ++sequence) {
        const auto owner = static_cast<uint32_t>(sequence % n);
        for (uint32_t r = 0; r < n; ++r)
          ASSERT_TRUE(contribute(bed, r, sequence, {.kind = kind, .owner = owner, .value = 1}).ok());
        bed.settle();
        for (uint32_t r = 0; r < n; ++r) {
          ASSERT_EQ(bed.results(r).size(), sequence + 1);
          const auto result = bed.results(r).back();
          EXPECT_EQ(result.header.kind, kind);
          const std::vector<float> expected(r == owner ? kCount : 0, static_cast<float>(n));
          EXPECT_EQ(LaneTestBed::floats(result.payload), expected);
        }
      }
    }
  }
}

TEST(LaneKinds, CopiesFromTheOwnerToAllOthersForAnyOrderOfArrival) {
  for (const Kind kind : {Kind::kAllGather, Kind::kBroadcast}) {
    for (const uint32_t n : {1U, 3U, 20U}) {
      LaneTestBed bed(n);
      bed.commit_all();
      for (uint64_t sequence = 0; sequence < 9; ++sequence) {
        const auto owner = static_cast<uint32_t>(sequence % n);
        for (uint32_t i = 0; i < n; ++i) {
          // The owner is the first, the last or in between. Other groups are then complete before its own.
          const uint32_t r = (i + owner + 1 + static_cast<uint32_t>(sequence)) % n;
          ASSERT_TRUE(contribute(bed, r, sequence,
                                 {.kind = kind, .owner = owner, .value = 7, .has_payload = r == owner})
                          .ok());
          bed.settle();
        }
        for (uint32_t r = 0; r < n; ++r) {
          ASSERT_EQ(bed.results(r).size(), sequence + 1);
          const std::vector<float> expected(r == owner ? 0 : kCount, 7);
          EXPECT_EQ(LaneTestBed::floats(bed.results(r).back().payload), expected);
        }
      }
    }
  }
}

TEST(LaneKinds, RefusesWhatTheKindDoesNotAllow) {
  const struct {
    const char* name;
    uint32_t rank;
    Contribution contribution;
    Errc code;
  } cases[] = {
      {"no owner", 0, {.has_owner_extension = false}, Errc::kBadExtension},
      {"an owner that is no rank", 0, {.owner = 3}, Errc::kBadField},
      {"a sum without payload", 1, {.has_payload = false}, Errc::kBadLength},
      {"a copy with the payload of another rank", 1, {.kind = Kind::kBroadcast}, Errc::kBadLength},
      {"a copy without the owner's", 0, {.kind = Kind::kAllGather, .has_payload = false}, Errc::kBadLength},
      {"a payload of another length", 0, {.chunk_bytes = 2 * kCount * sizeof(float)}, Errc::kBadLength},
      {"an empty chunk",
       1,
       {.kind = Kind::kBroadcast, .has_payload = false, .chunk_bytes = 0},
       Errc::kBadLength},
      {"half an element",
       1,
       {.kind = Kind::kBroadcast, .has_payload = false, .chunk_bytes = 6},
       Errc::kBadLength},
      {"a chunk above the slot",
       1,
       {.kind = Kind::kBroadcast, .has_payload = false, .chunk_bytes = 8192},
       Errc::kBadLength},
      {"a result in the first view", 0, {.flags = wire::kFlagKept}, Errc::kBadField},
  };
  for (const auto& c : cases) {
    LaneTestBed bed(3);
    bed.commit_all();
    ASSERT_TRUE(contribute(bed, c.rank, 0, c.contribution).ok()) << c.name;
    bed.settle();
    EXPECT_EQ(bed.ranks[c.rank]->endpoint, nullptr) << c.name;
    const auto events = bed.events();
    ASSERT_EQ(events.size(), 1U) << c.name;
    EXPECT_EQ(events[0].code, c.code) << c.name;
  }
}

TEST(LaneKinds, NamesBothCallsOfADisagreement) {
  const struct {
    Contribution first, second;
    const char* text;
  } cases[] = {
      {{.kind = Kind::kReduce},
       {.kind = Kind::kReduceScatter},
       "disagree on kind: rank 1 operation 0 is reduce-scatter of"},
      {{.kind = Kind::kReduce}, {.kind = Kind::kReduce, .owner = 1}, "disagree on root: rank 1"},
      {{.kind = Kind::kReduceScatter},
       {.kind = Kind::kReduceScatter, .owner = 1},
       "disagree on counts: rank 1"},
  };
  for (const auto& c : cases) {
    LaneTestBed bed(3);
    bed.commit_all();
    ASSERT_TRUE(contribute(bed, 0, 0, c.first).ok());
    bed.settle();
    ASSERT_TRUE(contribute(bed, 1, 0, c.second).ok());
    bed.settle();
    const auto events = bed.events();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].code, Errc::kMismatch);
    EXPECT_THAT(events[0].text.data(), HasSubstr(c.text));
  }
}

// After a view change the ranks repeat what they have: the owner its result, or all their contributions.
TEST(LaneKinds, TakesTheOwnersKeptResultOrAllContributionsInANewView) {
  for (const bool owner_has_result : {true, false}) {
    LaneTestBed bed(3, 4, 4096, true);
    bed.commit_all();
    bed.view = {.version = 1, .view_hash = 9, .base_chunk = 0};
    for (uint32_t r = 0; r < 3; ++r) ASSERT_TRUE(bed.send(r, bed.view).ok());
    bed.settle();
    for (uint32_t r = 0; r < 3; ++r) {
      const bool kept = r == 1 && owner_has_result;
      ASSERT_TRUE(
          contribute(
              bed, r, 0,
              {.owner = 1, .value = kept ? 42.0F : 1.0F, .flags = kept ? wire::kFlagKept : uint16_t{0}})
              .ok());
    }
    bed.settle();
    EXPECT_EQ(LaneTestBed::floats(bed.results(1).back().payload),
              std::vector<float>(kCount, owner_has_result ? 42.0F : 3.0F));
    EXPECT_TRUE(bed.results(0).back().payload.empty());
  }
}

TEST(LaneKinds, RefusesAKeptResultOfARankThatCannotHaveIt) {
  LaneTestBed bed(3, 4, 4096, true);
  bed.commit_all();
  bed.view = {.version = 1, .view_hash = 9, .base_chunk = 0};
  for (uint32_t r = 0; r < 3; ++r) ASSERT_TRUE(bed.send(r, bed.view).ok());
  bed.settle();
  ASSERT_TRUE(contribute(bed, 0, 0, {.owner = 1, .flags = wire::kFlagKept}).ok());
  bed.settle();
  EXPECT_EQ(bed.ranks[0]->endpoint, nullptr);
}

}  // namespace
}  // namespace sluice::test
