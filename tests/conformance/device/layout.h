#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/device/device_test_bed.h"

namespace sluice::pipeline::test {

inline constexpr std::byte kFill{0xe7};
inline constexpr size_t kMargin = 64;  // bytes around a staging buffer

struct LayoutShape {
  std::string name;
  std::vector<uint64_t> counts;  // elements per segment
  size_t offset = 0;             // distance of the first byte from an aligned address
  size_t gap = 16;               // bytes between two segments
};

// Layouts with one segment, a few, more than are copied individually, more than fit one kernel launch, and
// with unaligned, tiny and empty segments.
[[nodiscard]] std::vector<LayoutShape> shapes();

// Layout is a set of segments in device memory, with gaps between them.
class Layout {
 public:
  // All bytes are initially `fill`.
  Layout(DeviceTestBed& test_bed, const LayoutShape& shape, size_t element_bytes, std::byte fill);

  [[nodiscard]] const std::vector<BufferRange>& ranges() const { return ranges_; }
  [[nodiscard]] uint64_t elements() const { return elements_; }
  // Write and read the elements of all segments, in order and without the gaps.
  void write(const void* elements);
  template <typename T>
  [[nodiscard]] std::vector<T> read() {
    std::vector<T> out(elements_);
    get(reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  // True when all gap bytes are still `fill`.
  [[nodiscard]] bool gaps_are_untouched();

 private:
  void get(std::byte* out);

  DeviceTestBed& test_bed_;
  const size_t element_bytes_;
  const std::byte fill_;
  std::vector<std::byte> image_;
  std::byte* at_;
  std::vector<BufferRange> ranges_;
  uint64_t elements_ = 0;
};

// Floats of all kinds: normal, subnormal, zeros, infinities, NaNs of both signs, and ties of both casts.
[[nodiscard]] std::vector<float> special_floats(uint64_t count, uint32_t seed);
// Normal floats with exponents near `exponent`, and a few infinities and NaNs.
[[nodiscard]] std::vector<float> floats_around(uint64_t count, int exponent, uint32_t seed);

}  // namespace sluice::pipeline::test
