#include "store/snapshot/half_floats.h"

#include "core/bytes.h"
#include "core/float_bits.h"

namespace sluice::store {
namespace {

constexpr uint32_t kInfinity = 0x7f800000;

// Drops the low `bits` bits of x, 1 to 31, rounding to the nearest, ties to even.
constexpr uint32_t round_off(uint32_t x, uint32_t bits) noexcept {
  const uint32_t odd = (x >> bits) & 1;
  return (x + (uint32_t{1} << (bits - 1)) - 1 + odd) >> bits;
}

// Templates, so that the compiler makes a loop of vectors for each conversion.
template <typename Convert>
void store_all(std::span<const float> values, std::byte* out, const Convert& convert) noexcept {
  for (size_t i = 0; i < values.size(); ++i) store_le(out + 2 * i, convert(values[i]));
}
template <typename Convert>
void load_all(const std::byte* bytes, std::span<float> values, const Convert& convert) noexcept {
  for (size_t i = 0; i < values.size(); ++i) values[i] = convert(load_le<uint16_t>(bytes + 2 * i));
}

}  // namespace

uint16_t to_bf16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > kInfinity) return 0x7fc0;
  return static_cast<uint16_t>(round_off(bits, 16));
}

float from_bf16(uint16_t bits) noexcept {
  return (bits & 0x7fff) > 0x7f80 ? float_of(0x7fc00000) : float_of(uint32_t{bits} << 16);
}

uint16_t to_f16(float x) noexcept {
  const uint32_t bits = bits_of(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return 0x7e00;
  if (magnitude >= bits_of(65520.0F)) return static_cast<uint16_t>(sign | 0x7c00);
  // Normal: the exponent's bias changes from 127 to 15.
  if (magnitude >= bits_of(0x1p-14F))
    return static_cast<uint16_t>(sign | round_off(magnitude - (uint32_t{112} << 23), 13));
  if (magnitude < bits_of(0x1p-25F)) return static_cast<uint16_t>(sign);
  // Subnormal: multiples of 2^-24.
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  return static_cast<uint16_t>(sign | round_off(mantissa, 126 - (magnitude >> 23)));
}

float from_f16(uint16_t bits) noexcept {
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude > 0x7c00) return float_of(0x7fc00000);
  if (magnitude == 0x7c00) return float_of(sign | kInfinity);
  if (magnitude >= 0x400) return float_of(sign | ((magnitude << 13) + (uint32_t{112} << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24F;
  return float_of(sign | bits_of(value));
}

void store_elements(wire::DType dtype, std::span<const float> values, std::byte* out) noexcept {
  if (dtype == wire::DType::kF32) {
    for (size_t i = 0; i < values.size(); ++i) store_le(out + 4 * i, bits_of(values[i]));
    return;
  }
  if (dtype == wire::DType::kF16) return store_all(values, out, [](float x) { return to_f16(x); });
  store_all(values, out, [](float x) { return to_bf16(x); });
}

void load_elements(wire::DType dtype, const std::byte* bytes, std::span<float> values) noexcept {
  if (dtype == wire::DType::kF32) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = float_of(load_le<uint32_t>(bytes + 4 * i));
    return;
  }
  if (dtype == wire::DType::kF16) return load_all(bytes, values, [](uint16_t x) { return from_f16(x); });
  load_all(bytes, values, [](uint16_t x) { return from_bf16(x); });
}

}  // namespace sluice::store
