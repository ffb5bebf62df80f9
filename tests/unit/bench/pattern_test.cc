#include "bench/e2e/workload/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/e2e/report/nccl_table.h"
#include "reducer/kernels/fold.h"

namespace sluice::bench {
namespace {

using wire::DType;
using wire::Op;

constexpr size_t kCount = 3001;

// Reduces the contributions of all ranks like a reducer, in groups of eight. With `last_is_first` the last
// rank contributes the data of rank 0.
std::vector<std::byte> reduce(const Pattern& pattern, DType dtype, Op op, uint32_t ranks,
                              bool last_is_first = false) {
  const size_t size = wire::size_of(dtype);
  std::vector<std::vector<std::byte>> contributions(ranks, std::vector<std::byte>(kCount * size));
  for (uint32_t r = 0; r < ranks; ++r) {
    pattern.fill(last_is_first && r + 1 == ranks ? 0 : r, kCount, contributions[r].data());
  }
  std::vector<std::byte> result(kCount * size);
  std::vector<std::vector<std::byte>> partials;
  std::vector<const std::byte*> sources;
  const auto fold = [&](kernels::Stage stage, std::byte* out) {
    kernels::find_fold(dtype, op, stage)(sources, kCount, ranks, out);
    sources.clear();
  };
  for (uint32_t first = 0; first < ranks; first += kernels::kGroup) {
    for (uint32_t r = first; r < std::min<uint32_t>(ranks, first + kernels::kGroup); ++r)
      sources.push_back(contributions[r].data());
    if (ranks <= kernels::kGroup) {
      fold(kernels::Stage::kWhole, result.data());
      return result;
    }
    partials.emplace_back(kCount * wire::size_of(wire::accumulator_of(dtype)));
    fold(kernels::Stage::kPartial, partials.back().data());
  }
  for (const auto& partial : partials) sources.push_back(partial.data());
  fold(kernels::Stage::kFinish, result.data());
  return result;
}

TEST(Pattern, ReductionOverAnyNumberOfRanksMatches) {
  for (DType dtype : nccl_type_order()) {
    for (Op op : nccl_op_order()) {
      for (uint32_t ranks : {1U, 2U, 3U, 8U, 9U, 17U, 64U}) {
        const Pattern pattern(dtype, op, ranks, 5);
        EXPECT_EQ(pattern.count_wrong(reduce(pattern, dtype, op, ranks).data(), kCount), 0u)
            << to_string(dtype) << " " << to_string(op) << " of " << ranks;
      }
    }
  }
}

// Hosts send the sums of their ranks in these types.
TEST(Pattern, SumsOfHostsAreExact) {
  for (DType dtype : {DType::kBf16, DType::kF32, DType::kF64, DType::kI8, DType::kU32, DType::kI64}) {
    for (Op op : {Op::kSum, Op::kAvg}) {
      for (uint32_t of_host : {2U, 3U, 8U, 64U}) {
        const uint32_t ranks = 2 * of_host;
        const Pattern pattern(dtype, op, ranks, 5);
        const size_t bytes = kCount * wire::size_of(dtype);
        const auto fold = [&](Op with, const std::vector<std::vector<std::byte>>& sources) {
          std::vector<std::byte> out(bytes);
          std::vector<const std::byte*> pointers;
          for (const auto& s : sources) pointers.push_back(s.data());
          kernels::find_fold(dtype, with, kernels::Stage::kWhole)(pointers, kCount, ranks, out.data());
          return out;
        };
        std::vector<std::vector<std::byte>> hosts;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          std::vector<std::byte> of_rank(bytes);
          pattern.fill(rank, kCount, of_rank.data());
          if (rank % of_host == 0) {
            hosts.push_back(of_rank);
          } else {
            hosts.back() = fold(Op::kSum, {hosts.back(), of_rank});
          }
        }
        const std::vector<std::byte> sum = fold(Op::kSum, hosts);
        EXPECT_EQ(pattern.count_wrong(fold(op, {sum}).data(), kCount), 0u)
            << to_string(dtype) << " " << to_string(op) << " of " << ranks;
      }
    }
  }
}

// The worst order: first all positive values, then all negative ones, so that nothing cancels early.
TEST(Pattern, FloatSumsAreExactInAnyOrderWithOrderAny) {
  for (uint32_t ranks : {2U, 3U, 8U, 64U}) {
    for (const SummationOrder order : {SummationOrder::kByRank, SummationOrder::kAny}) {
      const Pattern pattern(DType::kF32, Op::kSum, ranks, 5, order);
      std::vector<std::vector<float>> contributions(ranks, std::vector<float>(kCount));
      for (uint32_t r = 0; r < ranks; ++r) {
        pattern.fill(r, kCount, reinterpret_cast<std::byte*>(contributions[r].data()));
      }
      std::vector<float> sum(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        for (const auto& of_rank : contributions) sum[i] += std::max(of_rank[i], 0.0F);
        for (const auto& of_rank : contributions) sum[i] += std::min(of_rank[i], 0.0F);
      }
      const uint64_t wrong = pattern.count_wrong(reinterpret_cast<const std::byte*>(sum.data()), kCount);
      if (order == SummationOrder::kAny) {
        EXPECT_EQ(wrong, 0u) << ranks;
      } else if (ranks > 3) {
        EXPECT_GT(wrong, kCount / 8) << ranks;
      }
    }
  }
}

TEST(Pattern, WrongRankIsDetected) {
  for (DType dtype : nccl_type_order()) {
    for (Op op : nccl_op_order()) {
      const Pattern pattern(dtype, op, 6, 5);
      EXPECT_GT(pattern.count_wrong(reduce(pattern, dtype, op, 6, true).data(), kCount), kCount / 8)
          << to_string(dtype) << " " << to_string(op);
    }
  }
}

TEST(Pattern, CountsEachWrongElementOnce) {
  const Pattern pattern(DType::kF32, Op::kSum, 2, 9);
  std::vector<std::byte> result = reduce(pattern, DType::kF32, Op::kSum, 2);
  result[0] ^= std::byte{1};
  result[3] ^= std::byte{1};
  result[4 * (kCount - 1)] ^= std::byte{0x80};
  EXPECT_EQ(pattern.count_wrong(result.data(), kCount), 2u);
}

// A check must detect a chunk at a wrong offset, a multiple of 64 bytes, and data of another check iteration.
TEST(Pattern, DiffersByOffsetAndSeed) {
  const Pattern pattern(DType::kI32, Op::kSum, 1, 1);
  std::vector<std::byte> data(4 * 3 * kPatternPeriod);
  pattern.fill(0, 3 * kPatternPeriod, data.data());
  EXPECT_EQ(pattern.count_wrong(data.data(), 3 * kPatternPeriod), 0u);
  for (size_t shift : {16U, 4096U, 65536U, 131072U}) {
    EXPECT_GT(pattern.count_wrong(data.data() + 4 * shift, 1000), 990u) << shift;
  }
  EXPECT_GT(Pattern(DType::kI32, Op::kSum, 1, 2).count_wrong(data.data(), 1000), 990u);
}

}  // namespace
}  // namespace sluice::bench
