// Compares every combination of dtype, op, stage, order, target, source count, size and alignment with the
// scalar reference, bit by bit.
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
using wire::SumOrder;

// The most elements of a fold.
size_t longest(DType t) {
  return wire::is_block(t) ? 9 : 1000;
}
// The most elements of a fold of many sources: more than a slice of such a fold.
size_t few(DType t) {
  return wire::is_block(t) ? 2 : 257;
}
constexpr size_t kSlack = 64;
constexpr std::byte kCanary{0xa5};

// Each pass that is compiled, whole groups of eight, one more, and trees of two and three levels.
std::vector<size_t> source_counts() {
  if (SLUICE_INSTRUMENTED) return {1, 7, 9, 24};
  if (kSlowBuild) return {1, 3, 4, 5, 6, 7, 8, 9, 24};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 19, 27, 64, 65, 255, kMaxSources};
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

void check(DType t, Op op, Stage stage, SumOrder order, const FoldTarget& target, const Sources& sources,
           size_t alignment, size_t most, uint32_t divisor, const std::vector<std::byte>& expected) {
  const size_t size = output_size(t, stage);
  const FoldFunction fold = target.find(t, op, stage, order);
  std::vector<std::byte> room(longest(t) * size + 2 * kSlack, kCanary);
  const std::vector<std::byte> untouched = room;
  std::byte* const result = room.data() + kSlack / 2 + offset_of(alignment, 5);
  for (const size_t count : sizes(t)) {
    if (count > most) continue;
    fold(sources.pointers, count, divisor, result);
    const size_t bytes = count * size;
    if (std::memcmp(result, expected.data(), bytes) != 0) {
      FAIL() << describe(t, op, stage, target.name, order) << ", " << sources.pointers.size() << " sources, "
             << count << " elements, alignment " << alignment << ": "
             << first_difference(t, stage, {result, bytes}, expected);
    }
    std::memset(result, std::to_integer<int>(kCanary), bytes);
    if (std::memcmp(room.data(), untouched.data(), room.size()) != 0) {
      const auto touched = std::mismatch(room.begin(), room.end(), untouched.begin()).first;
      FAIL() << describe(t, op, stage, target.name, order) << " wrote outside its destination, " << count
             << " elements, at " << &*touched - result;
    }
  }
}

TEST_P(FoldMatrix, EveryTargetEqualsTheReference) {
  const DType t = GetParam();
  std::mt19937_64 random(20240131 + static_cast<uint64_t>(t));
  for (const Stage stage : kStages) {
    std::vector<std::vector<std::byte>> data;
    for (size_t k = 0; k < source_counts().back(); ++k)
      data.push_back(random_input(t, stage, longest(t), random));
    for (const size_t n : source_counts()) {
      const size_t count = n <= 27 ? longest(t) : few(t);
      std::vector<Sources> placed;
      for (const size_t alignment : alignments()) placed.emplace_back(data, n, alignment);
      const auto divisor = static_cast<uint32_t>(stage == Stage::kFinish ? 8 * n - 3 : n);
      for (const Op op : ops_of(t)) {
        for (const SumOrder order : kOrders) {
          std::vector<std::byte> expected(longest(t) * output_size(t, stage));
          reference_fold(t, op, stage, order, placed[0].pointers, count, divisor, expected.data());
          for (const FoldTarget& target : fold_targets()) {
            for (size_t a = 0; a < placed.size(); ++a) {
              check(t, op, stage, order, target, placed[a], alignments()[a], count, divisor, expected);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

// A reducer relies on this for sessions of more than one group: partial sums of groups, finished, are the
// whole. In groups, a whole fold of more than eight sources is one sequence, which no reducer computes.
TEST_P(FoldMatrix, PartialThenFinishEqualsWhole) {
  const DType t = GetParam();
  std::mt19937_64 random(7);
  std::vector<std::vector<std::byte>> all;
  for (size_t k = 0; k < (kSlowBuild ? 17 : kMaxSources); ++k)
    all.push_back(random_input(t, Stage::kWhole, wire::is_block(t) ? 2 : 133, random));
  for (const size_t n : source_counts()) {
    if (n > all.size()) continue;
    const std::vector sources(all.begin(), all.begin() + static_cast<ptrdiff_t>(n));
    const auto divisor = static_cast<uint32_t>(n);
    for (const Op op : ops_of(t)) {
      for (const SumOrder order : kOrders) {
        if (order == SumOrder::kGroups && n > kGroup) continue;
        for (const FoldTarget& target : fold_targets()) {
          std::vector<std::vector<std::byte>> partials;
          for (size_t first = 0; first < n; first += kGroup) {
            const std::vector group(sources.begin() + static_cast<ptrdiff_t>(first),
                                    sources.begin() + static_cast<ptrdiff_t>(std::min(first + kGroup, n)));
            partials.push_back(run_fold(&target, t, op, Stage::kPartial, group, divisor, order));
          }
          const auto whole = run_fold(nullptr, t, op, Stage::kWhole, sources, divisor, order);
          const auto finish = run_fold(&target, t, op, Stage::kFinish, partials, divisor, order);
          ASSERT_EQ(whole, finish) << describe(t, op, Stage::kWhole, target.name, order) << ", " << n
                                   << " sources";
        }
      }
    }
  }
}

// The tree over 2048 ranks, the most that a session has, from 256 partial sums.
TEST_P(FoldMatrix, LargestSessionIsOneTree) {
  if (kSlowBuild) GTEST_SKIP() << "left out: the reference is slow in this build";
  const DType t = GetParam();
  std::mt19937_64 random(13);
  for (const size_t n : {size_t{2041}, kGroup * kMaxSources}) {
    std::vector<std::vector<std::byte>> sources;
    for (size_t k = 0; k < n; ++k)
      sources.push_back(random_input(t, Stage::kWhole, wire::is_block(t) ? 1 : 70, random));
    const auto divisor = static_cast<uint32_t>(n);
    for (const Op op : ops_of(t)) {
      const auto whole = run_fold(nullptr, t, op, Stage::kWhole, sources, divisor);
      std::vector<std::vector<std::byte>> partials;
      for (size_t first = 0; first < n; first += kGroup) {
        const std::vector group(sources.begin() + static_cast<ptrdiff_t>(first),
                                sources.begin() + static_cast<ptrdiff_t>(std::min(first + kGroup, n)));
        partials.push_back(run_fold(&fold_targets().front(), t, op, Stage::kPartial, group, divisor));
      }
      ASSERT_EQ(run_fold(&fold_targets().front(), t, op, Stage::kFinish, partials, divisor), whole)
          << describe(t, op, Stage::kFinish, "the best target") << ", " << n << " ranks";
    }
  }
}

// Hosts of 1, 2, 4 or 8 of eight ranks hand on partial sums in the accumulation type: the bits stay.
TEST_P(FoldMatrix, SumsOfHostsHaveTheBitsOfTheFlatSum) {
  const DType t = GetParam();
  std::mt19937_64 random(17);
  std::vector<std::vector<std::byte>> ranks;
  for (size_t k = 0; k < kGroup; ++k)
    ranks.push_back(random_input(t, Stage::kWhole, wire::is_block(t) ? 3 : 300, random));
  for (const Op op : ops_of(t)) {
    for (const FoldTarget& target : fold_targets()) {
      const auto flat = run_fold(&target, t, op, Stage::kWhole, ranks, kGroup);
      for (const size_t local : {1, 2, 4, 8}) {
        std::vector<std::vector<std::byte>> hosts;
        for (size_t first = 0; first < kGroup; first += local) {
          const std::vector host(ranks.begin() + static_cast<ptrdiff_t>(first),
                                 ranks.begin() + static_cast<ptrdiff_t>(first + local));
          hosts.push_back(run_fold(&target, t, op, Stage::kPartial, host, kGroup));
        }
        ASSERT_EQ(run_fold(&target, t, op, Stage::kFinish, hosts, kGroup), flat)
            << describe(t, op, Stage::kWhole, target.name) << ", " << local << " ranks per host";
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
            targets.front().find(DType::kF32, Op::kSum, Stage::kWhole, SumOrder::kTree));
  EXPECT_NE(find_fold(DType::kF32, Op::kSum, Stage::kWhole, SumOrder::kGroups),
            find_fold(DType::kF32, Op::kSum, Stage::kWhole));
}

}  // namespace
}  // namespace sluice::kernels::test
