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
#include "reducer/kernels/families-inl.h"
#include "wire/payload/block_codec.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

// Sums partial sums of blocks, as Codec::sum does blocks.
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

// A FoldFunction. An element is a block, or the f32 partial sums of a block.
template <class Codec, Stage kStage, bool kAvg>
void fold_blocks(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
                 std::byte* destination) noexcept {
  using Source = std::conditional_t<kStage == Stage::kFinish, PartialSums, Codec>;
  constexpr size_t kWide = wire::kBlockValues * sizeof(float);
  constexpr size_t kIn = kStage == Stage::kFinish ? kWide : wire::kBlockBytes;
  constexpr size_t kOut = kStage == Stage::kPartial ? kWide : wire::kBlockBytes;
  alignas(64) float values[wire::kBlockValues];
  for (size_t i = 0; i < count; ++i) {
    Source::sum(sources, i * kIn, values);
    if constexpr (kStage == Stage::kPartial) {
      store_canonical(values, destination + i * kOut);
    } else {
      if constexpr (kAvg) divide(values, divisor);
      Codec::encode(values, destination + i * kOut);
    }
  }
}

template <class Codec>
FoldFunction find_blocks(wire::Op op, Stage stage) noexcept {
  const bool is_avg = op == wire::Op::kAvg;
  if (op != wire::Op::kSum && !is_avg) return nullptr;
  switch (stage) {
    case Stage::kWhole:
      return is_avg ? fold_blocks<Codec, Stage::kWhole, true> : fold_blocks<Codec, Stage::kWhole, false>;
    case Stage::kPartial: return fold_blocks<Codec, Stage::kPartial, false>;
    case Stage::kFinish:
      return is_avg ? fold_blocks<Codec, Stage::kFinish, true> : fold_blocks<Codec, Stage::kFinish, false>;
  }
  return nullptr;
}

FoldFunction find_block(wire::DType t, wire::Op op, Stage stage) noexcept {
  return t == wire::DType::kMxfp8 ? find_blocks<Mxfp8Codec>(op, stage)
                                  : find_blocks<Int8BlockCodec>(op, stage);
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
