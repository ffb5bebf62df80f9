#include "tests/conformance/device/layout.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace sluice::pipeline::test {

std::vector<LayoutShape> shapes() {
  const std::vector<uint64_t> one{20000}, few{1000, 7, 16384, 1};
  std::vector<uint64_t> many, tiny, blocks;
  for (uint64_t i = 0; i < 40; ++i) many.push_back(301 + i * 37);
  for (uint64_t i = 0; i < 400; ++i) tiny.push_back(i % 5);  // some segments are empty
  for (uint64_t i = 0; i < 330; ++i) blocks.push_back(127 + i % 3);
  return {{"one", one, 0, 16},         {"few", few, 0, 16},      {"few_odd", few, 4, 20},
          {"few_anywhere", few, 1, 7}, {"many", many, 0, 16},    {"many_odd", many, 12, 20},
          {"tiny", tiny, 0, 4},        {"blocks", blocks, 4, 4}, {"anywhere", many, 3, 5}};
}

Layout::Layout(DeviceTestBed& test_bed, const LayoutShape& shape, size_t element_bytes, std::byte fill)
    : test_bed_(test_bed), element_bytes_(element_bytes), fill_(fill) {
  size_t bytes = shape.offset + shape.gap;
  for (const uint64_t count : shape.counts) bytes += count * element_bytes + shape.gap;
  image_.assign(bytes, fill);
  at_ = test_bed.allocate(bytes);
  test_bed.write(at_, image_);
  size_t at = shape.offset;
  for (const uint64_t count : shape.counts) {
    ranges_.push_back({.send = at_ + at, .recv = at_ + at, .count = count});
    elements_ += count;
    at += count * element_bytes + shape.gap;
  }
}

void Layout::write(const void* elements) {
  const auto* from = static_cast<const std::byte*>(elements);
  for (const BufferRange& range : ranges_) {
    const size_t bytes = range.count * element_bytes_;
    if (bytes != 0) std::memcpy(image_.data() + (range.send - at_), from, bytes);
    from += bytes;
  }
  test_bed_.write(at_, image_);
}

void Layout::get(std::byte* out) {
  test_bed_.read(image_, at_);
  for (const BufferRange& range : ranges_) {
    const size_t bytes = range.count * element_bytes_;
    if (bytes != 0) std::memcpy(out, image_.data() + (range.send - at_), bytes);
    out += bytes;
  }
}

bool Layout::gaps_are_untouched() {
  test_bed_.read(image_, at_);
  auto rest = image_;
  for (const BufferRange& range : ranges_)
    std::memset(rest.data() + (range.send - at_), static_cast<int>(fill_), range.count * element_bytes_);
  return rest == std::vector<std::byte>(rest.size(), fill_);
}

std::vector<float> special_floats(uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  const float special[] = {0.0F,
                           -0.0F,
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           float_of(0xffc12345),
                           float_of(0x7f800001),
                           float_of(0xff812345),
                           std::numeric_limits<float>::denorm_min(),
                           float_of(0x80000fff),
                           std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::lowest(),
                           65504.0F,
                           65520.0F,
                           float_of(0x3f808000),
                           float_of(0x3f818000),
                           float_of(0x3f801000),
                           float_of(0x33000001)};
  std::vector<float> out(count);
  for (float& x : out) {
    const auto bits = static_cast<uint32_t>(random());
    x = bits % 4 == 0 ? special[bits / 4 % std::size(special)] : float_of(static_cast<uint32_t>(random()));
  }
  return out;
}

std::vector<float> floats_around(uint64_t count, int exponent, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> of(-1.0F, 1.0F);
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = std::ldexp(of(random), exponent);
    if (i % 1009 == 5) out[i] = std::numeric_limits<float>::infinity();
    if (i % 1009 == 6) out[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return out;
}

}  // namespace sluice::pipeline::test
