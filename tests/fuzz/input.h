#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace sluice::fuzz {

using Bytes = std::vector<std::byte>;

// Input reads values from the input of a fuzzer. Beyond its end all values are 0, so every input is a
// complete script.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : in_(reinterpret_cast<const std::byte*>(data), size) {}

  [[nodiscard]] bool empty() const { return in_.empty(); }
  [[nodiscard]] size_t left() const { return in_.size(); }

  template <typename T>
  [[nodiscard]] T take() {
    T v{};
    const auto from = at_most(sizeof v);
    if (!from.empty()) std::memcpy(&v, from.data(), from.size());
    return v;
  }
  [[nodiscard]] uint8_t u8() { return take<uint8_t>(); }
  // Reads a number in 0 .. bound - 1.
  [[nodiscard]] uint32_t below(uint32_t bound) {
    return bound <= 256 ? u8() % bound : take<uint32_t>() % bound;
  }

  // Reads at most `size` bytes.
  [[nodiscard]] std::span<const std::byte> at_most(size_t size) {
    const auto out = in_.first(std::min(size, in_.size()));
    in_ = in_.subspan(out.size());
    return out;
  }
  // Reads exactly `size` bytes; missing bytes are 0.
  [[nodiscard]] Bytes exactly(size_t size) {
    const auto from = at_most(size);
    Bytes out(from.begin(), from.end());
    out.resize(size);
    return out;
  }

 private:
  std::span<const std::byte> in_;
};

// Runs the target on one input. Each target defines it; entry_point.cc calls it.
void fuzz_one(Input in);

}  // namespace sluice::fuzz
