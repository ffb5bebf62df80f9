#include "demo/digits/dataset.h"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>

// Embeds the compressed file of the source tree between two symbols.
__asm__(
    ".pushsection .rodata\n"
    ".global sluice_digits_begin\n"
    ".global sluice_digits_end\n"
    "sluice_digits_begin:\n"
    ".incbin \"" SLUICE_DIGITS_FILE
    "\"\n"
    "sluice_digits_end:\n"
    ".popsection\n");
// NOLINTBEGIN(readability-identifier-naming): assembler symbols
extern "C" const unsigned char sluice_digits_begin[];
extern "C" const unsigned char sluice_digits_end[];
// NOLINTEND(readability-identifier-naming)

namespace sluice::demo {
namespace {

constexpr float kMaxPixel = 16;
constexpr size_t kHeldOutEvery = 5;

Result<std::vector<char>> gunzip(std::span<const unsigned char> compressed) {
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return fail(Errc::kInternal, "cannot initialize zlib");
  stream.next_in = const_cast<unsigned char*>(compressed.data());  // zlib only reads it
  stream.avail_in = static_cast<unsigned>(compressed.size());
  std::vector<char> text;
  int status = Z_OK;
  while (status == Z_OK) {
    const size_t at = text.size();
    text.resize(at + (size_t{1} << 18));
    stream.next_out = reinterpret_cast<unsigned char*>(text.data() + at);
    stream.avail_out = static_cast<unsigned>(text.size() - at);
    status = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (status != Z_STREAM_END)
    return fail(Errc::kInternal, fmt::format("cannot decompress the embedded digits: zlib error {}", status));
  return text;
}

void copy_image(const Dataset& from, size_t i, Dataset& to) {
  const std::span<const float> image = from.image(i);
  to.pixels.insert(to.pixels.end(), image.begin(), image.end());
  to.labels.push_back(from.labels[i]);
}

}  // namespace

Result<Dataset> parse_digits(std::span<const char> csv) {
  Dataset digits;
  const char* at = csv.data();
  const char* const end = at + csv.size();
  while (at != end) {
    for (size_t column = 0; column <= kPixels; ++column) {
      unsigned value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      const bool last = column == kPixels;
      const char separator = last ? '\n' : ',';
      if (error != std::errc{} || next == end || *next != separator || value > (last ? kClasses - 1 : 16)) {
        return fail(Errc::kInternal,
                    fmt::format("digits: line {}, column {}: expected a {}", digits.size() + 1, column + 1,
                                last ? "digit" : "pixel value from 0 to 16"));
      }
      at = next + 1;
      if (last) {
        digits.labels.push_back(static_cast<uint8_t>(value));
      } else {
        digits.pixels.push_back(static_cast<float>(value) / kMaxPixel);
      }
    }
  }
  return digits;
}

Result<Dataset> load_digits() {
  auto text = gunzip({sluice_digits_begin, static_cast<size_t>(sluice_digits_end - sluice_digits_begin)});
  if (!text) return tl::unexpected<Error>(text.error());
  return parse_digits(*text);
}

Split split(const Dataset& all) {
  Split parts;
  for (size_t i = 0; i < all.size(); ++i)
    copy_image(all, i, i % kHeldOutEvery == 0 ? parts.held_out : parts.train);
  return parts;
}

}  // namespace sluice::demo
