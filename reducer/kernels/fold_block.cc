#include <cstddef>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reducer/kernels/fold_block.cc"
#include "reducer/kernels/targets.h"
//
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "reducer/kernels/blocks/block_sums-inl.h"
#include "reducer/kernels/blocks/int8_block-inl.h"
#include "reducer/kernels/blocks/mxfp8-inl.h"
#include "reducer/kernels/combine-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/families-inl.h"
#include "reducer/kernels/fold_tree-inl.h"
#include "wire/payload/block_codec.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// Sums partial sums of blocks in source order, as Codec::sum does blocks.
struct PartialSums {
  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    const DF df;
    for (size_t i = 0; i < wire::kBlockValues; i += hn::MaxLanes(df)) {
      const size_t at = offset + i * sizeof(float);
      VF all = load(df, sources[0] + at);
      for (const std::byte* source : sources.subspan(1)) all = hn::Add(all, load(df, source + at));
      hn::Store(all, df, values + i);
    }
  }
};

// Sums partial sums of blocks as a tree.
struct PartialTree {
  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    if (sources.size() <= kMostInSequence) return PartialSums::sum(sources, offset, values);
    const std::byte* at[kMaxSources];
    for (size_t k = 0; k < sources.size(); ++k) at[k] = sources[k] + offset;
    fold_tree<Plain<float>, FloatSum<DF>, false, false, false>({at, sources.size()}, wire::kBlockValues, 1,
                                                               reinterpret_cast<std::byte*>(values));
  }
};

// Sums blocks as a tree; more than eight in blocks of eight.
template <class Codec>
struct BlockTree {
  static HWY_INLINE void sum(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    if (sources.size() <= kernels::kGroup) return sum_group(sources, offset, values);
    sum_groups(sources, offset, values);
  }

 private:
  static HWY_NOINLINE void sum_group(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    if (sources.size() <= kMostInSequence) return Codec::sum(sources, offset, values);
    static constexpr decltype(&Codec::template tree<4>) kTrees[] = {
        Codec::template tree<4>, Codec::template tree<5>, Codec::template tree<6>, Codec::template tree<7>,
        Codec::template tree<8>};
    kTrees[sources.size() - kMostInSequence - 1](sources.data(), offset, values);
  }
  static HWY_NOINLINE void sum_groups(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
    alignas(64) float sums[kMaxSources / kernels::kGroup][wire::kBlockValues];
    const std::byte* at[kMaxSources / kernels::kGroup];
    size_t groups = 0;
    for (size_t first = 0; first < sources.size(); first += kernels::kGroup, ++groups) {
      const size_t rest = sources.size() - first;
      sum_group(sources.subspan(first, rest < kernels::kGroup ? rest : kernels::kGroup), offset,
                sums[groups]);
      at[groups] = reinterpret_cast<const std::byte*>(sums[groups]);
    }
    PartialTree::sum({at, groups}, 0, values);
  }
};

// Multiplication by the inverse of a power of two returns the same bits as a division, much faster.
HWY_INLINE void divide(float* values, uint32_t divisor) {
  const DF df;
  const bool is_power = (divisor & (divisor - 1)) == 0;
  const VF scale = hn::Set(df, is_power ? 1 / static_cast<float>(divisor) : static_cast<float>(divisor));
  for (size_t i = 0; i < wire::kBlockValues; i += hn::MaxLanes(df)) {
    const VF v = hn::Load(df, values + i);
    hn::Store(is_power ? hn::Mul(v, scale) : hn::Div(v, scale), df, values + i);
  }
}

HWY_INLINE void store_canonical(const float* values, std::byte* destination) {
  const DF df;
  for (size_t i = 0; i < wire::kBlockValues; i += hn::MaxLanes(df))
    store(canonical(df, hn::Load(df, values + i)), df, destination + i * sizeof(float));
}

// Not inlined into each fold, where a call per block does not count.
template <class Codec>
HWY_NOINLINE void encode_block(const float* HWY_RESTRICT values, std::byte* block) {
  Codec::encode(values, block);
}

// A FoldFunction. An element is a block, or the f32 partial sums of a block. Sums: how they are added.
template <class Sums, class Codec, Stage kStage, bool kAvg>
void fold_blocks(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                 std::byte* destination) noexcept {
  constexpr size_t kWide = wire::kBlockValues * sizeof(float);
  constexpr size_t kIn = kStage == Stage::kFinish ? kWide : wire::kBlockBytes;
  constexpr size_t kOut = kStage == Stage::kPartial ? kWide : wire::kBlockBytes;
  alignas(64) float values[wire::kBlockValues];
  for (size_t i = 0; i < count; ++i) {
    Sums::sum(sources, i * kIn, values);
    if constexpr (kStage == Stage::kPartial) {
      store_canonical(values, destination + i * kOut);
    } else {
      if constexpr (kAvg) divide(values, divisor);
      encode_block<Codec>(values, destination + i * kOut);
    }
  }
}

template <class Codec, class Blocks, class Partials>
FoldFunction find_blocks(bool is_avg, Stage stage) noexcept {
  switch (stage) {
    case Stage::kWhole:
      return is_avg ? fold_blocks<Blocks, Codec, Stage::kWhole, true>
                    : fold_blocks<Blocks, Codec, Stage::kWhole, false>;
    case Stage::kPartial: return fold_blocks<Blocks, Codec, Stage::kPartial, false>;
    case Stage::kFinish:
      return is_avg ? fold_blocks<Partials, Codec, Stage::kFinish, true>
                    : fold_blocks<Partials, Codec, Stage::kFinish, false>;
  }
  return nullptr;
}

template <class Codec>
FoldFunction find_ordered(wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  const bool is_avg = op == wire::Op::kAvg;
  if (op != wire::Op::kSum && !is_avg) return nullptr;
  return order == wire::SumOrder::kTree ? find_blocks<Codec, BlockTree<Codec>, PartialTree>(is_avg, stage)
                                        : find_blocks<Codec, Codec, PartialSums>(is_avg, stage);
}

FoldFunction find_block(wire::DType t, wire::Op op, Stage stage, wire::SumOrder order) noexcept {
  return t == wire::DType::kMxfp8 ? find_ordered<Mxfp8Codec>(op, stage, order)
                                  : find_ordered<Int8BlockCodec>(op, stage, order);
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
