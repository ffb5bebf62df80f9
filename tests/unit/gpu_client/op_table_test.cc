#include "gpu_client/engine/data_path/op_table.h"

#include <gtest/gtest.h>

#include <set>

#include "wire/frame.h"
#include "wire/view.h"

namespace sluice::engine {
namespace {

constexpr uint32_t kSlot = 256 * kKiB;

OpRequest request(uint64_t count, wire::DType dtype = wire::DType::kF32) {
  return {.count = count, .dtype = dtype};
}

TEST(OpTable, NumbersOperationsAndChunksInOrder) {
  OpTable table(4, kSlot);
  const uint32_t a = table.open(request(1 << 20)).value();
  const uint32_t b = table.open(request(0)).value();
  const uint32_t c = table.open(request(1)).value();
  EXPECT_EQ(table[a].op_id, 0u);
  EXPECT_EQ(table[a].chunk_bytes, wire::chunk_bytes(4 << 20, 4, kSlot, false));
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
  OpTable table(1, kSlot);
  const uint32_t wide = table.open(request(10 * kMiB, wire::DType::kF8e4m3)).value();
  const uint32_t plain = table.open(request(10 * kMiB, wire::DType::kU8)).value();
  EXPECT_EQ(table[wide].chunk_bytes, kSlot / 2);
  EXPECT_EQ(table[plain].chunk_bytes, kSlot);
}

TEST(OpTable, IsFullAt1024UntilAnEntryIsReleased) {
  OpTable table(1, kSlot);
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
  OpTable table(1, kSlot);
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
  OpTable table(1, kSlot);
  const uint32_t index = table.open(request(1)).value();
  EXPECT_EQ(table[index].state.load(), OpState::kOpen);
  table.end(index, Errc::kReducerLost);
  EXPECT_EQ(table[index].state.load(), OpState::kEnded);
  EXPECT_EQ(table[index].status, Errc::kReducerLost);
}

}  // namespace
}  // namespace sluice::engine
