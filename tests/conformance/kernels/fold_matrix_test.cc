// Compares every combination of dtype, op, stage, target, source count, size and alignment with the scalar
// reference, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "reducer/kernels/scalar_reference.h"
#include "tests/conformance/kernels/fold_pattern.h"

namespace sluice::kernels::test {
namespace {

using wire::DType;
using wire::Op;

// The most elements of a fold.
size_t longest(DType t) {
  return wire::is_block(t) ? 9 : 1000;
}
constexpr size_t kSlack = 64;
constexpr std::byte kCanary{0xa5};

// Whole groups of eight, one more, and many groups.
std::vector<size_t> source_counts() {
  if (SLUICE_INSTRUMENTED) return {1, 9, 24};
  return kSlowBuild ? std::vector<size_t>{1, 3, 8, 9, 24} : std::vector<size_t>{1, 2, 3, 5, 8, 9, 64};
}

std::vector<size_t> alignments() {
  return kSlowBuild ? std::vector<size_t>{0, 7} : std::vector<size_t>{0, 1, 7};
}

std::vector<size_t> sizes(DType t) {
  if (wire::is_block(t)) return {1, 2, longest(t)};
  std::vector<size_t> all;
  for (size_t i = 1; i <= 67; i += SLUICE_INSTRUMENTED ? 11 : kSlowBuild ? 5 : 1) all.push_back(i);
  for (const size_t i : {127, 128, 129, 255, 256, 257, 511, 513})
    if (!SLUICE_INSTRUMENTED || i % 2 == 1) all.push_back(i);
  all.push_back(longest(t));
  return all;
}

size_t offset_of(size_t alignment, size_t k) {
  return alignment == 0 ? 0 : (alignment * (3 * k + 1)) % kSlack;
}

// n sources, each with a different misalignment.
struct Sources {
  std::vector<std::vector<std::byte>> storage;
  std::vector<const std::byte*> pointers;

  Sources(const std::vector<std::vector<std::byte>>& data, size_t n, size_t alignment) : storage(n) {
    for (size_t k = 0; k < n; ++k) {
      storage[k].resize(data[k].size() + 2 * kSlack);
      auto address = reinterpret_cast<uintptr_t>(storage[k].data());
      std::byte* p = storage[k].data() + (kSlack - address % kSlack) % kSlack + offset_of(alignment, k);
      std::memcpy(p, data[k].data(), data[k].size());
      pointers.push_back(p);
    }
  }
};

class FoldMatrix : public testing::TestWithParam<DType> {};

void check(DType t, Op op, Stage stage, const FoldTarget& target, const Sources& sources, size_t alignment,
           uint32_t divisor, const std::vector<std::byte>& expected) {
  const size_t size = output_size(t, stage);
  const FoldFunction fold = target.find(t, op, stage);
  std::vector<std::byte> room(longest(t) * size + 2 * kSlack, kCanary);
  const std::vector<std::byte> untouched = room;
  std::byte* const result = room.data() + kSlack / 2 + offset_of(alignment, 5);
  for (const size_t count : sizes(t)) {
    fold(sources.pointers, count, divisor, result);
    const size_t bytes = count * size;
    if (std::memcmp(result, expected.data(), bytes) != 0) {
      FAIL() << describe(t, op, stage, target.name) << ", " << sources.pointers.size() << " sources, "
             << count << " elements, alignment " << alignment << ": "
             << first_difference(t, stage, {result, bytes}, expected);
    }
    std::memset(result, std::to_integer<int>(kCanary), bytes);
    if (std::memcmp(room.data(), untouched.data(), room.size()) != 0) {
      const auto touched = std::mismatch(room.begin(), room.end(), untouched.begin()).first;
      FAIL() << describe(t, op, stage, target.name) << " wrote outside its destination, " << count
             << " elements, at " << &*touched - result;
    }
  }
}

TEST_P(FoldMatrix, EveryTargetEqualsTheReference) {
  const DType t = GetParam();
  std::mt19937_64 random(20240131 + static_cast<uint64_t>(t));
  for (const Stage stage : kStages) {
    std::vector<std::vector<std::byte>> data;
    for (size_t k = 0; k < 64; ++k) data.push_back(random_input(t, stage, longest(t), random));
    for (const size_t n : source_counts()) {
      std::vector<Sources> placed;
      for (const size_t alignment : alignments()) placed.emplace_back(data, n, alignment);
      const auto divisor = static_cast<uint32_t>(stage == Stage::kFinish ? 8 * n - 3 : n);
      for (const Op op : ops_of(t)) {
        std::vector<std::byte> expected(longest(t) * output_size(t, stage));
        reference_fold(t, op, stage, placed[0].pointers, longest(t), divisor, expected.data());
        for (const FoldTarget& target : fold_targets()) {
          for (size_t a = 0; a < placed.size(); ++a) {
            check(t, op, stage, target, placed[a], alignments()[a], divisor, expected);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// A reducer relies on this for sessions of more than one group.
TEST_P(FoldMatrix, PartialThenFinishEqualsWhole) {
  const DType t = GetParam();
  std::mt19937_64 random(7);
  for (size_t n = 1; n <= kGroup; ++n) {
    std::vector<std::vector<std::byte>> sources;
    for (size_t k = 0; k < n; ++k)
      sources.push_back(random_input(t, Stage::kWhole, wire::is_block(t) ? 5 : 333, random));
    for (const Op op : ops_of(t)) {
      for (const FoldTarget& target : fold_targets()) {
        const auto whole = run_fold(&target, t, op, Stage::kWhole, sources, static_cast<uint32_t>(n));
        const auto partial = run_fold(&target, t, op, Stage::kPartial, sources, static_cast<uint32_t>(n));
        const auto finish = run_fold(&target, t, op, Stage::kFinish, {partial}, static_cast<uint32_t>(n));
        ASSERT_EQ(whole, finish) << describe(t, op, Stage::kWhole, target.name) << ", " << n << " sources";
      }
    }
  }
}

// 64 ranks in eight groups: partial sums of one target, finished by another target, give the same bits.
TEST_P(FoldMatrix, TargetsMayBeMixedBetweenGroups) {
  const DType t = GetParam();
  std::mt19937_64 random(11);
  std::vector<std::vector<std::vector<std::byte>>> groups(8);
  for (auto& group : groups) {
    for (size_t k = 0; k < kGroup; ++k)
      group.push_back(random_input(t, Stage::kWhole, wire::is_block(t) ? 3 : 100, random));
  }
  for (const Op op : ops_of(t)) {
    std::vector<std::vector<std::byte>> expected_partials;
    std::vector<std::vector<std::byte>> partials;
    for (size_t g = 0; g < groups.size(); ++g) {
      const FoldTarget& target = fold_targets()[g % fold_targets().size()];
      expected_partials.push_back(run_fold(nullptr, t, op, Stage::kPartial, groups[g], 64));
      partials.push_back(run_fold(&target, t, op, Stage::kPartial, groups[g], 64));
    }
    const auto expected = run_fold(nullptr, t, op, Stage::kFinish, expected_partials, 64);
    ASSERT_EQ(run_fold(&fold_targets().back(), t, op, Stage::kFinish, partials, 64), expected)
        << describe(t, op, Stage::kFinish, fold_targets().back().name);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, FoldMatrix, testing::ValuesIn(all_types()), [](const auto& type) {
  std::string name(wire::to_string(type.param));
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(FoldTargets, AreDistinctAndBestFirst) {
  const auto targets = fold_targets();
  ASSERT_FALSE(targets.empty());
  std::set<std::string_view> names;
  for (const FoldTarget& target : targets) EXPECT_TRUE(names.insert(target.name).second) << target.name;
  EXPECT_EQ(find_fold(DType::kF32, Op::kSum, Stage::kWhole),
            targets.front().find(DType::kF32, Op::kSum, Stage::kWhole));
}

}  // namespace
}  // namespace sluice::kernels::test
