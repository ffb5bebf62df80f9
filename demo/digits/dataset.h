// The UCI data set of handwritten digits, embedded in the program. See demo/digits/README.md for source and
// license.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

namespace sluice::demo {

inline constexpr size_t kPixels = 64;  // 8 x 8
inline constexpr size_t kClasses = 10;

struct Dataset {
  std::vector<float> pixels;    // kPixels values per image, 0..1
  std::vector<uint8_t> labels;  // 0..9

  [[nodiscard]] size_t size() const noexcept { return labels.size(); }
  [[nodiscard]] std::span<const float> image(size_t i) const {
    return {pixels.data() + i * kPixels, kPixels};
  }
};

struct Split {
  Dataset train;
  Dataset held_out;  // every fifth image
};

// Returns kInternal if the embedded file is corrupt, which means that the build is broken.
[[nodiscard]] Result<Dataset> load_digits();
// Parses lines of 65 comma-separated integers: the pixels, 0..16, and the label. Returns kInternal with the
// position of an error.
[[nodiscard]] Result<Dataset> parse_digits(std::span<const char> csv);
[[nodiscard]] Split split(const Dataset& all);

}  // namespace sluice::demo
