#include "tests/nccl/player/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/nccl/player/failure.h"
#include "tests/nccl/player/small_float.h"

namespace player {
namespace {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The stored type of an element, and the type in which it is folded.
template <typename T>
struct Plain {
  using Stored = T;
  using Folded = T;
  static Folded load(Stored x) { return x; }
  static Stored store(Folded x) {
    if constexpr (std::is_floating_point_v<T>) {
      // The sign bit of a NaN depends on the processor, for example of infinity minus infinity.
      if (std::isnan(x)) return std::numeric_limits<T>::quiet_NaN();
    }
    return x;
  }
};
template <const FloatFormat& kFormat, typename Bits>
struct Small {
  using Stored = Bits;
  using Folded = float;
  static Folded load(Stored x) {
    static const std::vector<float> values = [] {
      std::vector<float> all;
      for (uint32_t code = 0; code <= std::numeric_limits<Bits>::max(); ++code)
        all.push_back(widen(kFormat, code));
      return all;
    }();
    return values[x];
  }
  static Stored store(Folded x) { return static_cast<Stored>(narrow(kFormat, x)); }
};

template <typename Body>
auto with_element_type(DataType type, Body body) {
  switch (type) {
    case kInt8: return body(Plain<int8_t>{});
    case kUint8: return body(Plain<uint8_t>{});
    case kInt32: return body(Plain<int32_t>{});
    case kUint32: return body(Plain<uint32_t>{});
    case kInt64: return body(Plain<int64_t>{});
    case kUint64: return body(Plain<uint64_t>{});
    case kFloat32: return body(Plain<float>{});
    case kFloat64: return body(Plain<double>{});
    case kFloat16: return body(Small<kF16, uint16_t>{});
    case kBfloat16: return body(Small<kBf16, uint16_t>{});
    case kFloat8e4m3: return body(Small<kF8e4m3, uint8_t>{});
    case kFloat8e5m2: return body(Small<kF8e5m2, uint8_t>{});
  }
  throw Failure("unknown data type");
}

template <typename T>
T fold(ReduceOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const auto left = static_cast<uint64_t>(a), right = static_cast<uint64_t>(b);
    switch (op) {
      case kSum: return static_cast<T>(left + right);
      case kProd: return static_cast<T>(left * right);
      case kMax: return std::max(a, b);
      case kMin: return std::min(a, b);
    }
  } else {
    switch (op) {
      case kSum: return a + b;
      case kProd: return a * b;
      case kMax:
      case kMin: {
        if (std::isnan(a)) return b;
        if (std::isnan(b)) return a;
        const bool a_is_less = a < b || (a == b && std::signbit(a));
        return a_is_less == (op == kMin) ? a : b;
      }
    }
  }
  throw Failure("unknown operator");
}

// The balanced binary tree over n ranks from `first` on: the largest power of two below n on the left.
template <typename T, typename Element>
T fold_tree(ReduceOp op, const Element& element, size_t first, size_t n) {
  if (n == 1) return element(first);
  const size_t left = std::bit_floor(n - 1);
  const T sum = fold_tree<T>(op, element, first, left);
  return fold(op, sum, fold_tree<T>(op, element, first + left, n - left));
}

template <typename T>
T random_float(uint64_t bits) {
  switch (bits % 64) {
    case 0: return T{0};
    case 1: return -T{0};
    case 2:
      return static_cast<T>((bits & 64) != 0 ? std::numeric_limits<float>::infinity()
                                             : -std::numeric_limits<float>::infinity());
    case 3: return std::numeric_limits<T>::quiet_NaN();
    default: break;
  }
  // Similar exponents make the bits of a sum depend on its order. Every eighth element has a distant
  // exponent, so that products overflow and underflow.
  const int spread = (bits & 0x700) == 0 ? 40 : 6;
  const int exponent = static_cast<int>((bits >> 12) % static_cast<uint64_t>(2 * spread)) - spread;
  const T mantissa = T{1} + static_cast<T>(bits >> 40) / static_cast<T>(1 << 24);
  return std::ldexp((bits & 0x800) != 0 ? -mantissa : mantissa, exponent);
}

}  // namespace

void fill(DataType type, uint64_t seed, size_t first, size_t count, std::byte* out) {
  with_element_type(type, [&](auto kind) {
    using Kind = decltype(kind);
    using Stored = typename Kind::Stored;
    const uint64_t start = mix(seed);
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bits = mix(start + first + i);
      Stored element;
      if constexpr (std::is_integral_v<typename Kind::Folded>) {
        element = static_cast<Stored>(bits);
      } else {
        element = Kind::store(random_float<typename Kind::Folded>(bits));
      }
      std::memcpy(out + i * sizeof(Stored), &element, sizeof(Stored));
    }
  });
}

void fill_stale(DataType type, size_t count, std::byte* out) {
  std::memset(out, 0xff, count * size_of(type));
}

void reduce(DataType type, ReduceOp op, const std::vector<const std::byte*>& contributions, size_t count,
            std::byte* out) {
  with_element_type(type, [&](auto kind) {
    using Kind = decltype(kind);
    using Stored = typename Kind::Stored;
    using Folded = typename Kind::Folded;
    for (size_t i = 0; i < count; ++i) {
      const auto element = [&](size_t rank) {
        Stored stored;
        std::memcpy(&stored, contributions[rank] + i * sizeof(Stored), sizeof(Stored));
        return Kind::load(stored);
      };
      const Stored result = Kind::store(fold_tree<Folded>(op, element, 0, contributions.size()));
      std::memcpy(out + i * sizeof(Stored), &result, sizeof(Stored));
    }
  });
}

}  // namespace player
