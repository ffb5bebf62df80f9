// Takes a fuzzer's input apart. Past its end everything reads as 0, so that every input is a whole script.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace sluice::fuzz {

using Bytes = std::vector<std::byte>;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : in_(reinterpret_cast<const std::byte*>(data), size) {}

  [[nodiscard]] bool empty() const { return in_.empty(); }
  [[nodiscard]] size_t left() const { return in_.size(); }

  template <typename T>
  [[nodiscard]] T take() {
    T v{};
    const auto from = some(sizeof v);
    if (!from.empty()) std::memcpy(&v, from.data(), from.size());
    return v;
  }
  [[nodiscard]] uint8_t u8() { return take<uint8_t>(); }
  // 0 .. bound - 1
  [[nodiscard]] uint32_t below(uint32_t bound) {
    return bound <= 256 ? u8() % bound : take<uint32_t>() % bound;
  }

  // At most `size` bytes.
  [[nodiscard]] std::span<const std::byte> some(size_t size) {
    const auto out = in_.first(std::min(size, in_.size()));
    in_ = in_.subspan(out.size());
    return out;
  }
  // Exactly `size` bytes, zeros where the input ended.
  [[nodiscard]] Bytes exactly(size_t size) {
    const auto from = some(size);
    Bytes out(from.begin(), from.end());
    out.resize(size);
    return out;
  }

 private:
  std::span<const std::byte> in_;
};

}  // namespace sluice::fuzz
