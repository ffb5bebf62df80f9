// Segments of all sorts in a device's memory, with gaps between them, and what is in them as the host sees
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/device/bed.h"

namespace sluice::pipeline::test {

struct Shape {
  std::string name;
  std::vector<uint64_t> counts;  // of elements
  size_t offset = 0;             // of the first byte from an aligned address
  size_t gap = 16;               // bytes between two
};

// One segment, a few, more than are copied one by one, more than one launch takes, odd ones, tiny ones, empty
// ones.
[[nodiscard]] std::vector<Shape> shapes();

class Layout {
 public:
  // The bytes are `fill`.
  Layout(Bed& bed, const Shape& shape, size_t element_bytes, std::byte fill);

  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }
  [[nodiscard]] uint64_t elements() const { return elements_; }
  // Puts elements into the segments, or gets what they hold; one after the other, without gaps.
  void write(const void* elements);
  template <typename T>
  [[nodiscard]] std::vector<T> read() {
    std::vector<T> out(elements_);
    get(reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  // Whether the gaps still hold `fill`.
  [[nodiscard]] bool gaps_are_untouched();

 private:
  void get(std::byte* out);

  Bed& bed_;
  const size_t element_bytes_;
  const std::byte fill_;
  std::vector<std::byte> image_;
  std::byte* at_;
  std::vector<Segment> segments_;
  uint64_t elements_ = 0;
};

// Floats of all kinds: normal of all sizes, subnormal, zeros, infinities, NaN of both signs, ties of both
// casts.
[[nodiscard]] std::vector<float> all_kinds(uint64_t count, uint32_t seed);
// Normal ones with exponents near `exponent`, and now and then what is not finite.
[[nodiscard]] std::vector<float> around(uint64_t count, int exponent, uint32_t seed);

}  // namespace sluice::pipeline::test
