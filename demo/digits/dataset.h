// The UCI handwritten digits, from inside the program (demo/digits/README.md has source and licence).
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
  std::vector<float> pixels;    // kPixels for each image, 0..1
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

// kInternal when the embedded file is damaged: a broken build.
[[nodiscard]] Result<Dataset> load_digits();
// Lines of 65 comma-separated numbers.
[[nodiscard]] Result<Dataset> parse_digits(std::span<const char> csv);
[[nodiscard]] Split split(const Dataset& all);

}  // namespace sluice::demo
