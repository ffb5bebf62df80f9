// Folds of floats as a balanced binary tree over the sources (protocol.md section 7): the largest power of
// two below n on the left, recursively. Compiled once per target.
//
// Up to three sources, the tree is the sequence of fold_loop-inl.h. A pass over four to eight is compiled for
// each number of them, because a tree with a run-time shape costs 20 to 40 %. More sources are reduced in
// blocks of eight, which are subtrees; the tree over the blocks follows the same rule.
#include "reducer/kernels/targets.h"
//
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "hwy/highway.h"
#include "reducer/kernels/combine-inl.h"
#include "reducer/kernels/elements-inl.h"
#include "reducer/kernels/fold.h"
#include "reducer/kernels/fold_loop-inl.h"
#include "reducer/kernels/vectors-inl.h"
#include "wire/dtype.h"
#include "wire/sum_order.h"

#if defined(SLUICE_REDUCER_KERNELS_FOLD_TREE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_REDUCER_KERNELS_FOLD_TREE_INL_H_
#undef SLUICE_REDUCER_KERNELS_FOLD_TREE_INL_H_
#else
#define SLUICE_REDUCER_KERNELS_FOLD_TREE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels::HWY_NAMESPACE {

inline constexpr size_t kMostInSequence = 3;  // sources whose tree is their sequence

// The left part of a tree over `n` sources, n > 1.
constexpr size_t left_of(size_t n) {
  return std::bit_floor(n - 1);
}

// What one pass reads and writes: n sources of `count` elements each. `divides`: sums are divided by
// `divisor`.
struct TreePass {
  const std::byte* const* sources;
  size_t n;
  size_t count;
  bool divides;
  uint32_t divisor;
  std::byte* destination;
};

// One step of a pass. O is FloatSum or FloatProd over Kind::D. A division is a branch at run time, because it
// is a few instructions of a step. Code for sums, averages and partial sums apart would be larger.
template <class Kind, class O, bool kWideIn, bool kWideOut>
struct TreeStep {
  using D = typename Kind::D;
  using V = hn::Vec<D>;
  using Sum = typename Kind::template Pack<V>;
  static constexpr bool kIsSum = std::is_same_v<O, FloatSum<D>>;
  static constexpr bool kConverts = Kind::kBytes != Kind::kWideBytes;
  static constexpr size_t kElements = Kind::kElements;
  static constexpr size_t kIn = kWideIn ? Kind::kWideBytes : Kind::kBytes;  // bytes per element
  static constexpr size_t kOut = kWideOut ? Kind::kWideBytes : Kind::kBytes;
  // Steps of an iteration. A step without conversions is so short that the loop itself would count.
  static constexpr size_t kUnroll = sizeof(Sum) <= 2 * sizeof(V) ? 2 : 1;

  static HWY_INLINE Sum load(const std::byte* p) { return kWideIn ? Kind::load_wide(p) : Kind::load(p); }
  static HWY_INLINE Sum combine(Sum x, Sum y) { return kernels::HWY_NAMESPACE::combine<O>(x, y); }
  static HWY_INLINE void store(Sum sum, V divisor, bool divides, std::byte* p) {
    if (divides) sum = to_result<Quotient>(sum, divisor);
    if constexpr (kWideOut) {
      Kind::store_wide(to_result<O>(sum, divisor), p);
    } else {
      Kind::store(to_result<O>(sum, divisor), p);
    }
  }
  static HWY_INLINE void sequence(const TreePass& pass) {
    const std::span sources(pass.sources, pass.n);
    if constexpr (kIsSum && !(kWideOut && kConverts)) {  // partial sums are not divided
      if (pass.divides)
        return fold<Kind, FloatAvg<D>, kWideIn, kWideOut>(sources, pass.count, pass.divisor,
                                                          pass.destination);
    }
    fold<Kind, O, kWideIn, kWideOut>(sources, pass.count, pass.divisor, pass.destination);
  }

 private:
  struct Quotient {
    static HWY_INLINE V to_result(V v, V divisor) { return hn::Div(v, divisor); }
  };
};

// The tree over sources kFirst .. kFirst + kCount - 1, each at `offset`.
template <class S, size_t kFirst, size_t kCount>
HWY_INLINE typename S::Sum tree_of(const std::byte* const* sources, size_t offset) {
  if constexpr (kCount == 1) {
    return S::load(sources[kFirst] + offset);
  } else {
    constexpr size_t kLeft = left_of(kCount);
    const auto left = tree_of<S, kFirst, kLeft>(sources, offset);
    return S::combine(left, tree_of<S, kFirst + kLeft, kCount - kLeft>(sources, offset));
  }
}

// The same, with a shape at run time.
template <class S>
typename S::Sum run_time_tree(const std::byte* const* sources, size_t n, size_t offset) {
  if (n == 1) return S::load(sources[0] + offset);
  const size_t left = left_of(n);
  const auto sum = run_time_tree<S>(sources, left, offset);
  return S::combine(sum, run_time_tree<S>(sources + left, n - left, offset));
}

// A pass over kCount sources, 0: known at run time. The count of elements is a multiple of kUnroll steps.
template <class S, size_t kCount>
HWY_NOINLINE void tree_steps(const TreePass& pass) {
  constexpr size_t kStep = S::kUnroll * S::kElements;
  constexpr size_t kBytes = kStep * S::kIn;
  constexpr size_t kAhead = kBytes > kPrefetchDistance ? kBytes : kPrefetchDistance;
  const size_t n = kCount == 0 ? pass.n : kCount;
  const std::byte* sources[kCount == 0 ? kGroup : kCount];
  for (size_t k = 0; k < n; ++k) sources[k] = pass.sources[k];
  const auto divisor = hn::Set(typename S::D(), static_cast<hn::TFromD<typename S::D>>(pass.divisor));
  const bool divides = pass.divides;
  const size_t end = pass.count * S::kIn;
  std::byte* out = pass.destination;
  for (size_t i = 0; i != end; i += kBytes) {
    for (size_t k = 0; k < n; ++k)
      for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(sources[k] + i + kAhead + line);
    for (size_t u = 0; u < S::kUnroll; ++u, out += S::kElements * S::kOut) {
      const size_t offset = i + u * S::kElements * S::kIn;
      if constexpr (kCount == 0) {
        S::store(run_time_tree<S>(sources, n, offset), divisor, divides, out);
      } else {
        S::store(tree_of<S, 0, kCount>(sources, offset), divisor, divides, out);
      }
    }
  }
}

// Products of converted elements, which training does not use, and CPUs without vector instructions are not
// worth the size of a pass for each number of sources.
template <class S>
inline constexpr bool kCompiledTrees = HWY_TARGET != HWY_SCALAR&& HWY_TARGET != HWY_EMU128 &&
                                       (S::kIsSum || !S::kConverts);

using TreeSteps = void (*)(const TreePass& pass);
template <class S>
HWY_INLINE TreeSteps find_steps(size_t n) {
  if constexpr (kCompiledTrees<S>) {
    static constexpr TreeSteps kSteps[] = {tree_steps<S, 4>, tree_steps<S, 5>, tree_steps<S, 6>,
                                           tree_steps<S, 7>, tree_steps<S, 8>};
    return kSteps[n - kMostInSequence - 1];
  } else {
    static_cast<void>(n);
    return tree_steps<S, 0>;
  }
}

// A pass over up to eight sources. The last elements go through buffers, which prevents reads and writes past
// an end.
template <class S>
HWY_NOINLINE void tree_pass(const TreePass& pass) {
  if (pass.n <= kMostInSequence) return S::sequence(pass);
  constexpr size_t kStep = S::kUnroll * S::kElements;
  const TreeSteps steps = find_steps<S>(pass.n);
  const size_t whole = pass.count / kStep * kStep;
  TreePass part = pass;
  part.count = whole;
  steps(part);
  const size_t rest = pass.count - whole;
  if (rest == 0) return;
  alignas(64) std::byte in[kGroup][kStep * S::kIn];
  alignas(64) std::byte out[kStep * S::kOut];
  const std::byte* sources[kGroup];
  for (size_t k = 0; k < pass.n; ++k) {
    std::memset(in[k] + rest * S::kIn, 0, (kStep - rest) * S::kIn);
    std::memcpy(in[k], pass.sources[k] + whole * S::kIn, rest * S::kIn);
    sources[k] = in[k];
  }
  part = {sources, pass.n, kStep, pass.divides, pass.divisor, out};
  steps(part);
  std::memcpy(pass.destination + whole * S::kOut, out, rest * S::kOut);
}

// The passes of a fold of more than eight sources, and their bytes per element.
struct TreeLevels {
  void (*first)(const TreePass& pass);
  void (*next)(const TreePass& pass);
  void (*last)(const TreePass& pass);
  size_t in, wide, out;
};

// A fold of any number of sources: slice by slice, sums of eight sources each, then sums of eight sums, until
// one pass is left. The sums of a slice stay in the cache.
HWY_NOINLINE inline void fold_levels(const TreeLevels& levels, const TreePass& pass) {
  constexpr size_t kSliceBytes = 512;
  alignas(64) std::byte sums[kMaxSources / kGroup][kSliceBytes];
  const std::byte* block[kGroup];
  const size_t slice = kSliceBytes / levels.wide;
  for (size_t at = 0; at < pass.count; at += slice) {
    const size_t count = pass.count - at < slice ? pass.count - at : slice;
    size_t blocks = 0;
    for (size_t first = 0; first < pass.n; first += kGroup, ++blocks) {
      const size_t width = pass.n - first < kGroup ? pass.n - first : kGroup;
      for (size_t k = 0; k < width; ++k) block[k] = pass.sources[first + k] + at * levels.in;
      levels.first({block, width, count, false, 1, sums[blocks]});
    }
    // A sum overwrites one that is part of it, or of a sum before it.
    while (blocks > kGroup) {
      size_t next = 0;
      for (size_t first = 0; first < blocks; first += kGroup, ++next) {
        const size_t width = blocks - first < kGroup ? blocks - first : kGroup;
        for (size_t k = 0; k < width; ++k) block[k] = sums[first + k];
        levels.next({block, width, count, false, 1, sums[next]});
      }
      blocks = next;
    }
    for (size_t k = 0; k < blocks; ++k) block[k] = sums[k];
    levels.last({block, blocks, count, pass.divides, pass.divisor, pass.destination + at * levels.out});
  }
}

// A FoldFunction.
template <class Kind, class O, bool kWideIn, bool kWideOut, bool kDivides>
void fold_tree(std::span<const std::byte* const> sources, size_t count, uint32_t divisor,
               std::byte* destination) noexcept {
  constexpr bool kWide = Kind::kBytes != Kind::kWideBytes;  // Plain has no wide form of its own
  using Next = TreeStep<Plain<hn::TFromD<typename Kind::D>>, O, false, false>;
  using First = std::conditional_t<kWideIn, Next, TreeStep<Kind, O, false, kWide>>;
  using Last = TreeStep<Kind, O, kWide, kWideOut>;
  const TreePass pass{sources.data(), sources.size(), count, kDivides, divisor, destination};
  if (sources.size() <= kGroup) return tree_pass<TreeStep<Kind, O, kWideIn, kWideOut>>(pass);
  // A wide result of many sources is one more sum of sums.
  constexpr bool kLastIsNext = kWideOut && kWide;
  fold_levels({tree_pass<First>, tree_pass<Next>, tree_pass<std::conditional_t<kLastIsNext, Next, Last>>,
               First::kIn, Kind::kWideBytes, Last::kOut},
              pass);
}

// Minima and maxima have the same bits in every order.
constexpr bool is_tree(wire::Op op, wire::SumOrder order) {
  return order == wire::SumOrder::kTree && op != wire::Op::kMin && op != wire::Op::kMax;
}

// Requires is_tree().
template <class Kind>
FoldFunction find_tree(wire::Op op, Stage stage) noexcept {
  using Sum = FloatSum<typename Kind::D>;
  using Prod = FloatProd<typename Kind::D>;
  // If the accumulation type is the wire type, stages differ only in whether avg divides.
  constexpr bool kWide = Kind::kBytes != Kind::kWideBytes;
  if (stage == Stage::kPartial)
    return op == wire::Op::kProd ? fold_tree<Kind, Prod, false, kWide, false>
                                 : fold_tree<Kind, Sum, false, kWide, false>;
  const bool finishes = stage == Stage::kFinish;
  switch (op) {
    case wire::Op::kProd:
      return finishes ? fold_tree<Kind, Prod, kWide, false, false>
                      : fold_tree<Kind, Prod, false, false, false>;
    case wire::Op::kAvg:
      return finishes ? fold_tree<Kind, Sum, kWide, false, true> : fold_tree<Kind, Sum, false, false, true>;
    default:
      return finishes ? fold_tree<Kind, Sum, kWide, false, false> : fold_tree<Kind, Sum, false, false, false>;
  }
}

}  // namespace sluice::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
