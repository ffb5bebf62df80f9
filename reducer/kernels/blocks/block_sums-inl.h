// Sums of blocks in f32, before they are encoded. Compiled once per target.
//
// A codec (Mxfp8Codec, Int8BlockCodec) is a struct with these members:
//   kGroup, kScaleBytes  values per scale, bytes per scale
//   decode(scale, codes) the values of one vector of codes; any bytes are valid
//   sum                  overwrites the 256 values with the sum of the blocks at `offset` of all sources, in
//                        source order
//   tree<n>              the same of n sources, at most eight, as a balanced binary tree (fold_tree-inl.h)
//   encode               encodes 256 values as one block
// `values` is aligned to vectors.
#include "reducer/kernels/targets.h"
//
#include <cstddef>
#include <span>

#include "hwy/highway.h"
#include "reducer/kernels/convert-inl.h"
#include "reducer/kernels/fold_tree-inl.h"
#include "reducer/kernels/vectors-inl.h"
#include "wire/payload/block_codec.h"

#if defined(SLUICE_REDUCER_KERNELS_BLOCKS_BLOCK_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_BLOCKS_BLOCK_SUMS_INL_H_
#undef SLUICE_REDUCER_KERNELS_BLOCKS_BLOCK_SUMS_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_BLOCKS_BLOCK_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

using BlockSources = std::span<const std::byte* const>;

// Vectors of sums that stay in registers while all sources are added: 16 of the 32 registers of AVX3, 8 of
// the 16 of AVX2.
inline constexpr size_t kBlockVectors = HWY_TARGET == HWY_AVX3 ? 16 : 8;

// Prefetches the block after the next one of a source. See kPrefetchDistance in fold_loop-inl.h.
HWY_INLINE void prefetch_block(const std::byte* block) {
  const std::byte* const ahead = block + 2 * wire::kBlockBytes;
  for (size_t line = 0; line < wire::kBlockBytes; line += 64) __builtin_prefetch(ahead + line);
}

// Codec::sum for blocks with any bytes. Products may overflow, so that a fused multiply-add would return
// other bits. The product of the first source is stored, not added to zero, so that -0 stays -0.
template <class Codec>
HWY_NOINLINE void sum_any(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
  const DF df;
  bool first = true;
  for (const std::byte* source : sources) {
    const std::byte* scale = source + offset;
    const std::byte* codes = source + offset + wire::kBlockScaleBytes;
    for (size_t at = 0; at < wire::kBlockValues; at += Codec::kGroup, scale += Codec::kScaleBytes) {
      for (size_t i = at; i < at + Codec::kGroup; i += hn::MaxLanes(df)) {
        const VF product = Codec::decode(scale, codes + i);
        hn::Store(first ? product : hn::Add(hn::Load(df, values + i), product), df, values + i);
      }
    }
    first = false;
  }
}

// Adds the products code x factor of `count` blocks to `values`. kFirst: overwrites `values`. All products
// must be exact and finite. `terms` returns for block k and value `at` an object with members code(i) and
// factor(i), i relative to `at`.
template <bool kFirst, class Terms>
HWY_INLINE void add_products(const Terms& terms, size_t count, float* HWY_RESTRICT values) {
  const DF df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  VF sums[kBlockVectors];
  for (size_t at = 0; at < wire::kBlockValues; at += kBlockVectors * kLanes) {
    if constexpr (kFirst) {
      const auto term = terms(0, at);
      for (size_t v = 0; v < kBlockVectors; ++v)
        sums[v] = hn::Mul(term.code(v * kLanes), term.factor(v * kLanes));
    } else {
      for (size_t v = 0; v < kBlockVectors; ++v) sums[v] = hn::Load(df, values + at + v * kLanes);
    }
    for (size_t k = kFirst ? 1 : 0; k < count; ++k) {
      const auto term = terms(k, at);
      for (size_t v = 0; v < kBlockVectors; ++v)
        sums[v] = hn::MulAdd(term.code(v * kLanes), term.factor(v * kLanes), sums[v]);
    }
    for (size_t v = 0; v < kBlockVectors; ++v) hn::Store(sums[v], df, values + at + v * kLanes);
  }
}

// The tree over the values at `at` of blocks with any bytes.
template <class Codec>
VF tree_any(const std::byte* const* sources, size_t n, size_t offset, size_t at) {
  if (n == 1) {
    const std::byte* const block = sources[0] + offset;
    return Codec::decode(block + at / Codec::kGroup * Codec::kScaleBytes,
                         block + wire::kBlockScaleBytes + at);
  }
  const size_t left = left_of(n);
  const VF sum = tree_any<Codec>(sources, left, offset, at);
  return hn::Add(sum, tree_any<Codec>(sources + left, n - left, offset, at));
}

// Codec::tree for blocks with any bytes. See sum_any().
template <class Codec>
HWY_NOINLINE void tree_sum_any(BlockSources sources, size_t offset, float* HWY_RESTRICT values) {
  const DF df;
  for (size_t at = 0; at < wire::kBlockValues; at += hn::MaxLanes(df))
    hn::Store(tree_any<Codec>(sources.data(), sources.size(), offset, at), df, values + at);
}

// The tree over the products of terms kFirst .. kFirst + kCount - 1.
template <size_t kFirst, size_t kCount, class Term>
HWY_INLINE VF tree_of_products(const Term* terms, const VF* factors, size_t i) {
  if constexpr (kCount == 1) {
    return hn::Mul(terms[kFirst].code(i), factors[kFirst]);
  } else {
    constexpr size_t kLeft = left_of(kCount);
    const VF left = tree_of_products<kFirst, kLeft>(terms, factors, i);
    if constexpr (kCount - kLeft == 1) {
      return hn::MulAdd(terms[kFirst + kLeft].code(i), factors[kFirst + kLeft], left);
    } else {
      return hn::Add(left, tree_of_products<kFirst + kLeft, kCount - kLeft>(terms, factors, i));
    }
  }
}

// Overwrites `values` with the tree over the products of kCount blocks. `terms` and the products are those of
// add_products().
template <size_t kCount, size_t kGroupValues, class Terms>
HWY_INLINE void add_product_tree(const Terms& terms, float* HWY_RESTRICT values) {
  const DF df;
  constexpr size_t kLanes = hn::MaxLanes(df);
  constexpr size_t kPart =
      kGroupValues < 4 * kLanes ? kGroupValues : 4 * kLanes;  // values that share factors
  for (size_t at = 0; at < wire::kBlockValues; at += kPart) {
    decltype(terms(0, 0)) part[kCount];
    VF factors[kCount];
    for (size_t k = 0; k < kCount; ++k) {
      part[k] = terms(k, at);
      factors[k] = part[k].factor(0);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
      asm("" : "+v"(factors[k].raw));  // else each multiplication loads it again
#endif
    }
    for (size_t i = 0; i < kPart; i += kLanes)
      hn::Store(tree_of_products<0, kCount>(part, factors, i), df, values + at + i);
  }
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
