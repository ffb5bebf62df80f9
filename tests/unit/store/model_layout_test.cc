#include "store/model/model_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "store/model/memory_needed.h"
#include "tests/unit/store/model_fixture.h"

namespace sluice::store {
namespace {

using test::small_model;

TEST(ModelLayout, CutsTensorsIntoShards) {
  const ModelLayout layout(small_model(), 2);  // 161 elements
  EXPECT_EQ(layout.elements(), 161u);
  EXPECT_EQ(layout.shard_elements(), 128u);
  EXPECT_EQ(layout.used_elements(0), 128u);
  EXPECT_EQ(layout.used_elements(1), 33u);
  EXPECT_EQ(layout.offset(2), 71u);
  EXPECT_EQ(layout.pieces_of_shard(0),
            (std::vector<ShardPiece>{{0, 0, 0, 0, 70}, {1, 0, 0, 70, 1}, {2, 0, 0, 71, 57}}));
  EXPECT_EQ(layout.pieces_of_shard(1), (std::vector<ShardPiece>{{2, 1, 57, 0, 33}}));
  EXPECT_EQ(layout.pieces_of_tensor(2), (std::vector<ShardPiece>{{2, 0, 0, 71, 57}, {2, 1, 57, 0, 33}}));
}

TEST(ModelLayout, CoversEveryElementOnce) {
  for (const uint32_t shards : {1, 2, 3, 4, 7, 100}) {
    const ModelSpec spec = small_model();
    const ModelLayout layout(spec, shards);
    EXPECT_EQ(layout.shard_elements() % kShardMultiple, 0u);
    std::vector<int> covered(161), by_tensor(161);
    for (uint32_t shard = 0; shard < shards; ++shard) {
      uint64_t used = 0;
      for (const ShardPiece& p : layout.pieces_of_shard(shard)) {
        EXPECT_EQ(p.shard, shard);
        EXPECT_EQ(p.first_in_shard, used);
        ASSERT_LE(p.first_in_tensor + p.count, spec.tensors[p.tensor].elements());
        used += p.count;
        for (uint64_t i = 0; i < p.count; ++i) ++covered[layout.offset(p.tensor) + p.first_in_tensor + i];
      }
      EXPECT_EQ(used, layout.used_elements(shard));
      EXPECT_LE(used, layout.shard_elements());
    }
    for (uint32_t t = 0; t < 3; ++t) {
      for (const ShardPiece& p : layout.pieces_of_tensor(t)) {
        for (uint64_t i = 0; i < p.count; ++i)
          ++by_tensor[p.shard * layout.shard_elements() + p.first_in_shard + i];
      }
    }
    EXPECT_EQ(covered, std::vector<int>(161, 1)) << shards;
    EXPECT_EQ(by_tensor, std::vector<int>(161, 1)) << shards;
  }
}

TEST(MemoryNeeded, CountsVersionsAndStagedDeltas) {
  const ModelSpec spec = small_model();  // Nesterov, 3 versions, quorum 4
  const ModelLayout layout(spec, 2);
  const MemoryNeeded needed = memory_needed(spec, layout, 6);
  EXPECT_EQ(needed.version_bytes(), 512u * 2 * 4 * 2);
  EXPECT_EQ(needed.staged_bytes(), 512u * 6);
  EXPECT_EQ(memory_needed(spec, layout, 1).staged_bytes(), 512u * 4) << "the quorum";
  EXPECT_EQ(memory_needed(spec, ModelLayout(spec, 1), 1).places, 1u) << "one reducer has no copy";

  EXPECT_FALSE(check_memory(spec, needed, 11264, 0).has_value());
  const auto error = check_memory(spec, needed, 12000, 737);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Errc::kMemoryLimit);
  EXPECT_EQ(
      error->text,
      "model \"digits\" needs 11264 bytes on each reducer (4 versions x 2 arrays x 512 bytes x 2 shards, "
      "and 6 staged deltas of 512 bytes); the memory limit is 12000 bytes, 737 of them reserved");
  EXPECT_TRUE(check_memory(spec, needed, 100, 200).has_value()) << "more reserved than the limit";
}

}  // namespace
}  // namespace sluice::store
