// Parameters of the float formats that folds handle, shared by the scalar reference and the vector code.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// A pattern is sign | magnitude. Every magnitude above `largest` is a NaN.
struct FloatFormat {
  int bits;           // width of a pattern
  int mantissa_bits;  // stored bits
  int bias;           // of the exponent
  uint64_t largest;   // magnitude of infinity, or of the largest finite value if there is no infinity
  uint64_t overflow;  // magnitude of a result that is too large or infinite
  uint64_t nan;       // the only NaN that a fold writes
  bool has_infinity;

  [[nodiscard]] constexpr uint64_t magnitude_mask() const noexcept { return (uint64_t{1} << (bits - 1)) - 1; }
};

// f16, f32, f64: IEEE 754-2019 table 3.5. e4m3 and e5m2: OCP 8-bit Floating Point Specification (OFP8)
// revision 1.0, tables 1-2.
inline constexpr FloatFormat kF16Format{16, 10, 15, 0x7c00, 0x7c00, 0x7e00, true};
inline constexpr FloatFormat kBf16Format{16, 7, 127, 0x7f80, 0x7f80, 0x7fc0, true};
inline constexpr FloatFormat kE4m3Format{8, 3, 7, 0x7e, 0x7e, 0x7f, false};
inline constexpr FloatFormat kE5m2Format{8, 2, 15, 0x7c, 0x7b, 0x7e, true};
inline constexpr FloatFormat kF32Format{32, 23, 127, 0x7f800000, 0x7f800000, 0x7fc00000, true};
inline constexpr FloatFormat kF64Format{
    64, 52, 1023, 0x7ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000, true};

}  // namespace sluice::kernels
