#include "wire/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "wire/dtype.h"

namespace sluice::wire {
namespace {

View three() {
  View v;
  v.window_bytes = 2 * kMiB;
  v.slot_bytes = 256 * kKiB;
  v.reducers = {{.id = 0x1111111111111111, .lanes = 2},
                {.id = 0x2222222222222222, .lanes = 2},
                {.id = 0x3333333333333333, .lanes = 1, .weight = 2}};
  return v;
}

View equal(uint16_t reducers, uint16_t lanes) {
  View v;
  for (uint16_t i = 0; i < reducers; ++i) v.reducers.push_back({.id = uint64_t{0x1000} + i, .lanes = lanes});
  return v;
}

size_t lane_count(const View& v) {
  size_t n = 0;
  for (const ViewReducer& r : v.reducers) n += r.lanes;
  return n;
}

size_t reducer_of(const View& v, uint32_t lane) {
  size_t r = 0;
  while (lane >= v.reducers[r].lanes) lane -= v.reducers[r++].lanes;
  return r;
}

// The expected values are from an independent Python program, written from protocol.md section 8.
TEST(ViewHash, IsTheGoldenValue) {
  EXPECT_EQ(view_hash(three()), 0x86a48db64a0ae2e7u);
  View v;
  v.version = 3;
  v.window_bytes = 1 << 20;
  v.slot_bytes = 64 << 10;
  v.reducers = {{.id = 7}, {.id = 8, .alive = false}};
  EXPECT_EQ(view_hash(v), 0xe587071c31d2267fu);
}

TEST(ViewHash, DiffersWithEveryFieldAndTheOrder) {
  const std::function<void(View&)> changes[] = {
      [](View& v) { v.version = 1; },
      [](View& v) { v.window_bytes += 1; },
      [](View& v) { v.slot_bytes += 1; },
      [](View& v) { v.reducers[1].id ^= 1; },
      [](View& v) { v.reducers[1].lanes = 1; },
      [](View& v) { v.reducers[1].weight = 2; },
      [](View& v) { v.reducers[1].alive = false; },
      [](View& v) { v.reducers.pop_back(); },
      [](View& v) { v.reducers.push_back({.id = 4}); },
      [](View& v) { std::swap(v.reducers[0], v.reducers[1]); },
  };
  std::vector<uint64_t> seen = {view_hash(three())};
  for (const auto& change : changes) {
    View v = three();
    change(v);
    const uint64_t hash = view_hash(v);
    EXPECT_EQ(std::ranges::count(seen, hash), 0) << "change " << seen.size();
    seen.push_back(hash);
  }
}

TEST(Slots, AreAtLeastTwoPerLane) {
  EXPECT_EQ(slots_per_lane(2 * kMiB, 256 * kKiB, 2), 4u);
  EXPECT_EQ(slots_per_lane(2 * kMiB, 256 * kKiB, 4), 2u);
  EXPECT_EQ(slots_per_lane(2 * kMiB, 256 * kKiB, 3), 2u) << "rounded down";
  EXPECT_EQ(slots_per_lane(2 * kMiB, 256 * kKiB, 8), 2u);
  EXPECT_EQ(slots_per_lane(256 * kKiB, 256 * kKiB, 1), 2u);
  EXPECT_EQ(slots_per_lane(8 * kMiB, 64 * kKiB, 1), 128u);
}

// A view with co-located reducers of one lane each.
View view_with_rates(std::vector<uint64_t> rates) {
  View view;
  view.reducers.resize(rates.size(), ViewReducer{.lanes = 1});
  view.worker_rates = std::move(rates);
  return view;
}

TEST(SlotBytes, LimitSimultaneousChunksTo128KiB) {
  EXPECT_EQ(slot_bytes_for(1, 1), 128 * kKiB);
  EXPECT_EQ(slot_bytes_for(2, 1), 64 * kKiB);
  EXPECT_EQ(slot_bytes_for(3, 2), 32 * kKiB);
  EXPECT_EQ(slot_bytes_for(4, 4), 32 * kKiB);
  EXPECT_EQ(slot_bytes_for(8, 4), 16 * kKiB);
  EXPECT_EQ(slot_bytes_for(4, 8), 16 * kKiB);
  EXPECT_EQ(slot_bytes_for(2048, 64), 16 * kKiB);
}

TEST(SlotBytes, CountAllRailsOnTheSameLinks) {
  EXPECT_EQ(slot_bytes_for(4, 4, 1), 32 * kKiB);
  EXPECT_EQ(slot_bytes_for(4, 4, 2), 16 * kKiB);
  EXPECT_EQ(slot_bytes_for(4, 4, 4), 8 * kKiB);
  EXPECT_EQ(slot_bytes_for(4, 4, 8), 8 * kKiB);
  EXPECT_EQ(slot_bytes_for(2, 1, 2), 32 * kKiB);
  EXPECT_EQ(slot_bytes_for(2048, 64, 64), 8 * kKiB);
  EXPECT_EQ(default_slot_bytes({}, 4, 8), 8 * kKiB);
}

TEST(SlotBytes, OfRailsFollowTheRates) {
  const auto slot = [](size_t reducers, uint64_t rate, uint32_t rails) {
    View view = view_with_rates(std::vector<uint64_t>(4, rate));
    view.reducers.resize(reducers, ViewReducer{.lanes = 1});
    return default_slot_bytes(view, 4, rails);
  };
  EXPECT_EQ(slot(4, 25'000'000, 4), 8 * kKiB) << "16 chunks at once";
  EXPECT_EQ(slot(4, 25'000'000, 8), 4 * kKiB) << "32";
  EXPECT_EQ(slot(6, 12'500'000'000, 8), 64 * kKiB) << "the queues hold more";
}

TEST(View, CutsSmallOperationsIntoChunksThatASlowLinkCarriesIn50Us) {
  EXPECT_EQ(chunk_sizes({}).smallest, 16 * kKiB);
  ChunkSizes sizes = chunk_sizes(view_with_rates({1'000'000'000, 200'000'000, 1'000'000'000}));
  EXPECT_EQ(sizes.smallest, 1280u) << "200 Mbit/s: 1250 bytes, a multiple of 64";
  sizes.slot_bytes = 64 * kKiB;
  EXPECT_EQ(chunk_bytes(16 * kKiB, 4, sizes, DType::kF32), 2 * kKiB);
  EXPECT_EQ(chunk_bytes(4 * kKiB, 4, sizes, DType::kF32), 1280u);
  EXPECT_EQ(chunk_sizes(view_with_rates({kMinLinkRate, kMinLinkRate})).smallest, 1 * kKiB);
  EXPECT_EQ(chunk_sizes(view_with_rates({100'000'000'000, 100'000'000'000})).smallest, 16 * kKiB);
}

TEST(View, HasLargerSlotsWhereFastLinksHaveLongQueues) {
  constexpr uint64_t kMbit = 1'000'000;
  const auto slot = [](size_t ranks, uint64_t rate) {
    return default_slot_bytes(view_with_rates(std::vector<uint64_t>(ranks, rate)),
                              static_cast<uint32_t>(ranks));
  };
  EXPECT_EQ(slot(4, 200 * kMbit), 32 * kKiB) << "20.8 kB fit";
  EXPECT_EQ(slot(4, 500 * kMbit), 32 * kKiB) << "52 kB";
  EXPECT_EQ(slot(4, 1000 * kMbit), 64 * kKiB) << "104 kB";
  EXPECT_EQ(slot(4, 100'000 * kMbit), 64 * kKiB);
  EXPECT_EQ(slot(64, 1000 * kMbit), 16 * kKiB) << "4.9 kB";
  EXPECT_EQ(slot(64, 10'000 * kMbit), 32 * kKiB) << "49.6 kB";
  EXPECT_EQ(slot(1, 1000 * kMbit), 128 * kKiB);
  View one_lane;
  one_lane.reducers.resize(1, ViewReducer{.lanes = 1});
  EXPECT_EQ(default_slot_bytes(one_lane, 4), 32 * kKiB) << "no rates";
}

TEST(ChunkBytes, ExceedTheUsualSizeWithManyChunksPerLane) {
  const ChunkSizes sizes{.usual = 32 * kKiB, .slot_bytes = 64 * kKiB};
  EXPECT_EQ(chunk_bytes(256 * kKiB, 4, sizes, DType::kF32), 32 * kKiB);
  EXPECT_EQ(chunk_bytes(16 * kMiB, 4, sizes, DType::kF32), 32 * kKiB);
  EXPECT_EQ(chunk_bytes(24 * kMiB, 4, sizes, DType::kF32), 48 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, sizes, DType::kF32), 64 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, sizes, DType::kF8e4m3), 32 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, {.usual = 32 * kKiB, .slot_bytes = 8 * kKiB}, DType::kF32), 8 * kKiB);
}

TEST(ChunkBytes, FollowTheRule) {
  constexpr uint32_t kSlot = 256 * kKiB;
  // bytes / (2 x lanes), rounded up to 64, within 16 KiB and the slot.
  EXPECT_EQ(chunk_bytes(1, 4, {.slot_bytes = kSlot}, DType::kF32), 16 * kKiB);
  EXPECT_EQ(chunk_bytes(128 * kKiB, 4, {.slot_bytes = kSlot}, DType::kF32), 16 * kKiB);
  EXPECT_EQ(chunk_bytes(256 * kKiB, 4, {.slot_bytes = kSlot}, DType::kF32), 32 * kKiB);
  EXPECT_EQ(chunk_bytes(256 * kKiB + 1, 4, {.slot_bytes = kSlot}, DType::kF32), 32 * kKiB + 64);
  EXPECT_EQ(chunk_bytes(1'000'000, 6, {.slot_bytes = kSlot}, DType::kF32), 83392u);  // 83333.3
  EXPECT_EQ(chunk_bytes(2 * kMiB, 4, {.slot_bytes = kSlot}, DType::kF32), 256 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, {.slot_bytes = kSlot}, DType::kF32), 256 * kKiB);
  EXPECT_EQ(chunk_bytes(uint64_t{1} << 62, 1, {.slot_bytes = kSlot}, DType::kF32), 256 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, {.slot_bytes = kSlot}, DType::kF8e4m3), 128 * kKiB) << "fp8: half a slot";
  EXPECT_EQ(chunk_bytes(kGiB, 4, {.slot_bytes = 4 * kKiB}, DType::kF32), 4 * kKiB)
      << "a slot below 16 KiB is the upper bound too";
  EXPECT_EQ(chunk_bytes(1, 4, {.slot_bytes = 4 * kKiB}, DType::kF32), 4 * kKiB);
  EXPECT_EQ(chunk_bytes(kGiB, 4, {.slot_bytes = 4 * kKiB}, DType::kF8e4m3), 2 * kKiB);
}

TEST(ChunkBytes, AreWholeElementsAndFitASlot) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    const auto slot = static_cast<uint32_t>((4 * kKiB) * (1 + random() % 64) + 64 * (random() % 64));
    const auto lanes = static_cast<uint32_t>(1 + random() % 256);
    const uint64_t bytes = 1 + (random() >> (random() % 60 + 4));
    const auto dtype = static_cast<DType>(random() % kDTypeCount);
    const uint32_t chunk = chunk_bytes(bytes, lanes, {.slot_bytes = slot}, dtype);
    const bool wide = accumulated_size_of(dtype) > 2 * size_of(dtype);
    const uint32_t largest = wide ? slot / 2 : slot;
    ASSERT_EQ(chunk % size_of(dtype), 0u);
    ASSERT_LE(chunk, largest);
    ASSERT_LE(chunk / size_of(dtype) * accumulated_size_of(dtype), 2 * slot) << "a partial sum fits its slot";
    ASSERT_GT(chunk + size_of(dtype), std::min<uint32_t>(16 * kKiB, largest));
  }
}

TEST(Placement, IsTheGoldenTable) {
  EXPECT_EQ(placement_table(three()), (std::vector<uint32_t>{4, 0, 2, 4, 4, 1, 3, 4}));
  View removed = three();
  removed.reducers[1].alive = false;
  EXPECT_EQ(placement_table(removed), (std::vector<uint32_t>{4, 0, 4, 4, 1, 4}));
  EXPECT_EQ(placement_table(equal(2, 2)), (std::vector<uint32_t>{0, 2, 1, 3}));
  View weighted;
  weighted.reducers = {{.id = 5, .weight = 3}, {.id = 6, .weight = 2}, {.id = 7, .weight = 1}};
  EXPECT_EQ(placement_table(weighted), (std::vector<uint32_t>{0, 1, 0, 2, 1, 0}));
  EXPECT_EQ(placement_table(equal(4, 4)),
            (std::vector<uint32_t>{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}));
  View one_less = equal(4, 4);
  one_less.reducers[2].alive = false;
  EXPECT_EQ(placement_table(one_less), (std::vector<uint32_t>{0, 4, 12, 1, 5, 13, 2, 6, 14, 3, 7, 15}));
}

TEST(Placement, BalancesEveryRunOfChunksForEqualWeights) {
  for (const uint16_t reducers : std::initializer_list<uint16_t>{1, 2, 3, 5, 8, 16}) {
    for (const uint16_t lanes : std::initializer_list<uint16_t>{1, 2, 3, 4}) {
      const View view = equal(reducers, lanes);
      const auto table = placement_table(view);
      for (size_t begin = 0; begin < table.size(); ++begin) {
        std::vector<unsigned> chunks(lane_count(view), 0);
        for (size_t run = 1; run <= 2 * table.size(); ++run) {
          ++chunks[table[(begin + run - 1) % table.size()]];
          const auto [least, most] = std::ranges::minmax(chunks);
          ASSERT_LE(most - least, 1u) << reducers << " x " << lanes << " run " << run << " from " << begin;
        }
      }
    }
  }
}

TEST(Placement, FollowsTheWeightsForAnyLaneCount) {
  View view;
  view.reducers = {{.id = 1, .lanes = 4, .weight = 5},
                   {.id = 2, .lanes = 1, .weight = 1},
                   {.id = 3, .lanes = 2, .weight = 3}};
  const auto table = placement_table(view);
  std::map<size_t, size_t> turns;
  for (const uint32_t lane : table) ++turns[reducer_of(view, lane)];
  EXPECT_EQ(turns, (std::map<size_t, size_t>{{0, 20}, {1, 4}, {2, 12}}));
  // Every run of chunks is close to its shares too.
  for (size_t begin = 0; begin < table.size(); ++begin) {
    std::vector<double> got(3, 0);
    for (size_t run = 1; run <= table.size(); ++run) {
      got[reducer_of(view, table[(begin + run - 1) % table.size()])] += 1;
      for (size_t r = 0; r < 3; ++r)
        ASSERT_NEAR(got[r], static_cast<double>(run) * view.reducers[r].weight / 9, 2.0);
    }
  }
}

TEST(Placement, AfterARemovalEqualsThePlacementOfTheRemainingReducers) {
  std::mt19937_64 random(6);
  for (int round = 0; round < 200; ++round) {
    View view;
    const size_t count = 2 + random() % 7;
    for (size_t i = 0; i < count; ++i) {
      view.reducers.push_back({.id = random(),
                               .lanes = static_cast<uint16_t>(1 + random() % 4),
                               .weight = static_cast<uint16_t>(1 + random() % 3)});
    }
    // Removes one reducer after the other until one remains.
    for (size_t gone = 0; gone + 1 < count; ++gone) {
      view.reducers[gone].alive = false;
      View left;
      uint32_t removed_lanes = 0;  // they are the first
      for (const ViewReducer& r : view.reducers) {
        if (r.alive) {
          left.reducers.push_back(r);
        } else {
          removed_lanes += r.lanes;
        }
      }
      auto expected = placement_table(left);
      for (uint32_t& lane : expected) lane += removed_lanes;
      ASSERT_EQ(placement_table(view), expected);
    }
  }
}

TEST(Placement, IsDeterministic) {
  View view = three();
  view.reducers[0].alive = false;
  EXPECT_EQ(placement_table(view), placement_table(view));
}

}  // namespace
}  // namespace sluice::wire
