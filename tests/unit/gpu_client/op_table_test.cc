#include "gpu_client/engine/data_path/op_table.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kSlot = 256 * kKiB;

OpRequest request(uint64_t count, wire::DType dtype = wire::DType::kF32) {
  return {.count = count, .dtype = dtype};
}

TEST(OpTable, NumbersOperationsAndChunksInOrder) {
  OpTable table(4, {.slot_bytes = kSlot}, 1);
  const uint32_t a = table.open(request(1 << 20)).value();
  const uint32_t b = table.open(request(0)).value();
  const uint32_t c = table.open(request(1)).value();
  EXPECT_EQ(table[a].op_id, 0u);
  EXPECT_EQ(table[a].chunk_bytes, wire::chunk_bytes(4 << 20, 4, {.slot_bytes = kSlot}, wire::DType::kF32));
  EXPECT_EQ(table[a].chunk_count, div_ceil(4 << 20, table[a].chunk_bytes));
  EXPECT_EQ(table[b].op_id, 1u);
  EXPECT_EQ(table[b].chunk_count, 0u);
  EXPECT_EQ(table[c].op_id, 2u);
  EXPECT_EQ(table[c].first_chunk, table[a].chunk_count);
  EXPECT_EQ(table[c].chunk_count, 1u);
  EXPECT_EQ(table[c].fingerprint,
            wire::fingerprint(1, wire::DType::kF32, wire::Op::kSum, wire::Kind::kAllreduce));
}

TEST(OpTable, HalvesTheLargestChunkOfFp8) {
  OpTable table(1, {.slot_bytes = kSlot}, 1);
  const uint32_t wide = table.open(request(10 * kMiB, wire::DType::kF8e4m3)).value();
  const uint32_t plain = table.open(request(10 * kMiB, wire::DType::kU8)).value();
  EXPECT_EQ(table[wide].chunk_bytes, kSlot / 2);
  EXPECT_EQ(table[plain].chunk_bytes, kSlot);
}

// Ranks in groups of 2: chunks take turns over 3 groups, and have the same bytes of 2 parts.
TEST(OpTable, CutsEqualPartsOfAGroupTogether) {
  OpTable table(1, {.smallest = 16 * kKiB, .slot_bytes = 16 * kKiB}, 6, 2);
  OpRequest r = request(6 * 3000);
  r.kind = wire::Kind::kReduceScatter;
  const Operation& o = table[table.open(r).value()];
  EXPECT_EQ(o.parts_per_chunk, 2U);
  EXPECT_EQ(o.chunk_bytes, 8 * kKiB);
  EXPECT_EQ(o.chunk_count, 3 * 2U) << "12,000 B of each part";
  std::vector<uint64_t> covered(3);
  for (uint64_t q = o.first_chunk; q < o.first_chunk + o.chunk_count; ++q) {
    const ChunkPlace place = table.place(o, q);
    ASSERT_LT(place.owner, 3U);
    EXPECT_EQ(place.within, covered[place.owner]);
    covered[place.owner] += place.length;
  }
  EXPECT_EQ(covered, std::vector<uint64_t>(3, 12'000));

  r.kind = wire::Kind::kAllGather;
  EXPECT_EQ(table[table.open(r).value()].parts_per_chunk, 2U);
  r.kind = wire::Kind::kReduceScatter;
  const std::vector<size_t> unequal{1, 2, 3, 4, 5, 6};
  r.counts = unequal;
  r.count = 21;
  EXPECT_EQ(table[table.open(r).value()].parts_per_chunk, 1U);

  OpTable many(1, {.smallest = 64, .slot_bytes = 64}, 6, 2);
  r.counts = {};
  r.count = 6 * 3000;
  EXPECT_EQ(many[many.open(r).value()].parts_per_chunk, 1U) << "a chunk has no room for 64 B of each part";
}

// Only where parts are cut together: there small operations are one chunk with the parts of all ranks.
TEST(OpTable, MakesAGroupOfAllRanksWhereOneChunkHoldsAllParts) {
  OpTable table(1, {.smallest = 16 * kKiB, .slot_bytes = 16 * kKiB}, 6, 2);
  OpRequest r = request(6 * 5);
  for (const wire::Kind kind : {wire::Kind::kReduceScatter, wire::Kind::kAllGather}) {
    r.kind = kind;
    const Operation& o = table[table.open(r).value()];
    EXPECT_EQ(o.parts_per_chunk, 6U);
    EXPECT_EQ(o.chunk_count, 1U);
    const ChunkPlace place = table.place(o, o.first_chunk);
    EXPECT_EQ(place.owner, 0U);
    EXPECT_EQ(place.length, 5 * 4U);
  }
  r.count = 0;
  EXPECT_EQ(table[table.open(r).value()].chunk_count, 0U);
  OpTable apart(1, {.smallest = 16 * kKiB, .slot_bytes = 16 * kKiB}, 6, 1);
  r.count = 6 * 5;
  EXPECT_EQ(apart[apart.open(r).value()].chunk_count, 6U);
}

// Each part is covered by its owner's chunks in their order, and the parts take turns (protocol.md section
// 8).
TEST(OpTable, DividesThePartsOfAllRanksIntoChunksInTurn) {
  const std::vector<std::vector<size_t>> cases = {{100, 100, 100}, {100'000, 100'000, 100'000},
                                                  {0, 70'001, 20}, {50'000, 0, 0},
                                                  {1, 2, 3},       {9'999, 30'000, 20'000}};
  OpTable table(2, {.slot_bytes = 16 * kKiB}, 3);
  for (const std::vector<size_t>& counts : cases) {
    OpRequest r = request(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    r.kind = wire::Kind::kReduceScatter;
    r.counts = counts;
    const uint32_t index = table.open(r).value();
    const Operation& o = table[index];
    std::vector<uint64_t> covered(3), chunks(3);
    Rank last = static_cast<Rank>((o.first_chunk + 2) % 3);
    for (uint64_t q = o.first_chunk; q < o.first_chunk + o.chunk_count; ++q) {
      const ChunkPlace place = table.place(o, q);
      EXPECT_EQ(place.within, covered[place.owner]);
      EXPECT_EQ(place.part, 4 * std::accumulate(counts.begin(), counts.begin() + place.owner, size_t{0}));
      EXPECT_GT(place.length, 0U);
      EXPECT_LE(place.length, o.chunk_bytes);
      covered[place.owner] += place.length;
      ++chunks[place.owner];
      // A rank between the last owner and this one has no chunk left.
      for (Rank passed = (last + 1) % 3; passed != place.owner; passed = (passed + 1) % 3)
        EXPECT_EQ(covered[passed], 4 * counts[passed]);
      last = place.owner;
    }
    for (Rank rank = 0; rank < 3; ++rank) EXPECT_EQ(covered[rank], 4 * counts[rank]);
  }
}

TEST(OpTable, HasNoChunkForPartsWithoutElements) {
  OpTable table(2, {.slot_bytes = kSlot}, 3);
  for (const std::vector<size_t>& counts : {std::vector<size_t>{}, {0, 0, 0}}) {
    OpRequest r = request(0);
    r.kind = wire::Kind::kAllGather;
    r.counts = counts;
    EXPECT_EQ(table[table.open(r).value()].chunk_count, 0U);
  }
}

TEST(OpTable, GivesAllChunksOfABroadcastToItsRoot) {
  OpTable table(2, {.slot_bytes = 16 * kKiB}, 3);
  OpRequest r = request(100'000);
  r.kind = wire::Kind::kBroadcast;
  r.root = 2;
  const Operation& o = table[table.open(r).value()];
  EXPECT_GT(o.chunk_count, 3U);
  for (uint64_t q = 0; q < o.chunk_count; ++q) EXPECT_EQ(table.place(o, q).owner, 2U);
  EXPECT_NE(o.fingerprint, wire::fingerprint(100'000, r.dtype, r.op, r.kind, 1));
}

TEST(OpTable, KnowsWhatARankReceives) {
  OpTable table(2, {.slot_bytes = 16 * kKiB}, 3);
  std::vector<std::byte> recv(1);
  const auto result_bytes = [&](wire::Kind kind, Rank rank, const std::vector<size_t>& counts = {}) {
    OpRequest r = request(60'000);
    r.recv = recv.data();
    r.kind = kind;
    r.root = 1;
    r.counts = counts;
    const uint32_t index = table.open(r).value();
    const auto result = table.result(index, rank);
    EXPECT_TRUE(result.empty() || result.data() == recv.data());
    return result.size();
  };
  EXPECT_EQ(result_bytes(wire::Kind::kAllreduce, 2), 240'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kAllGather, 2), 240'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kAllGather, 2, {60'000, 0, 0}), 240'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kBroadcast, 2), 240'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kReduce, 1), 240'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kReduce, 2), 0U);
  EXPECT_EQ(result_bytes(wire::Kind::kReduceScatter, 2), 80'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kReduceScatter, 2, {20'000, 10'000, 30'000}), 120'000U);
  EXPECT_EQ(result_bytes(wire::Kind::kReduceScatter, 2, {60'000, 0, 0}), 0U);
  OpRequest on_device = request(1);
  on_device.recv = recv.data();
  on_device.on_device = true;
  EXPECT_TRUE(table.result(table.open(on_device).value(), 0).empty());
}

TEST(OpTable, IsFullAt1024UntilAnEntryIsReleased) {
  OpTable table(1, {.slot_bytes = kSlot}, 1);
  std::set<uint64_t> handles;
  for (uint32_t i = 0; i < OpTable::kCapacity; ++i)
    handles.insert(table.handle_of(table.open(request(1)).value()));
  EXPECT_EQ(handles.size(), 1024u);
  EXPECT_FALSE(table.open(request(1)).has_value());
  EXPECT_EQ(table.open_count(), 1024u);
  const uint32_t some = table.find(*handles.begin());
  table.end(some, Errc::kOk);
  EXPECT_EQ(table.open_count(), 1023u);
  EXPECT_FALSE(table.open(request(1)).has_value()) << "ended but not released";
  table.release(some);
  EXPECT_TRUE(table.open(request(1)).has_value());
}

TEST(OpTable, DetectsAReleasedHandle) {
  OpTable table(1, {.slot_bytes = kSlot}, 1);
  const uint32_t index = table.open(request(1)).value();
  const uint64_t handle = table.handle_of(index);
  EXPECT_NE(handle, 0u);
  EXPECT_EQ(table.find(handle), index);
  table.end(index, Errc::kOk);
  table.release(index);
  EXPECT_EQ(table.find(handle), kNoOperation);
  const uint32_t again = table.open(request(1)).value();
  EXPECT_EQ(again, index) << "the entry is reused";
  EXPECT_EQ(table.find(handle), kNoOperation);
  EXPECT_EQ(table.find(0), kNoOperation);
  EXPECT_EQ(table.find(~uint64_t{0}), kNoOperation);
}

TEST(OpTable, StoresTheStatusOfAnEndedOperation) {
  OpTable table(1, {.slot_bytes = kSlot}, 1);
  const uint32_t index = table.open(request(1)).value();
  EXPECT_EQ(table[index].state.load(), OpState::kOpen);
  table.end(index, Errc::kReducerLost);
  EXPECT_EQ(table[index].state.load(), OpState::kEnded);
  EXPECT_EQ(table[index].status, Errc::kReducerLost);
}

}  // namespace
}  // namespace sluice::engine
