// Writer and reader for the bodies of control frames. A message lists its fields once, in wire order, in
// visit(). BodyWriter and BodyReader both visit that list, so encoder and decoder cannot differ. Integers are
// little-endian; a text is a u16 length and bytes; a list is a u16 count and items. For the control path
// only: texts and lists allocate, up to the limits in the message.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "wire/frame.h"

namespace sluice::wire {

// BodyWriter appends fields to a body.
class BodyWriter {
 public:
  template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>) void operator()(const T& v) {
    if constexpr (std::is_enum_v<T>) {
      append(static_cast<std::underlying_type_t<T>>(v));
    } else {
      append(v);
    }
  }
  template <size_t N>
  void operator()(const std::array<uint8_t, N>& v) {
    for (uint8_t b : v) bytes_.push_back(static_cast<std::byte>(b));
  }
  // Truncates a text at `limit`: texts are for people, and a missing end must not fail the message.
  void text(const std::string& v, size_t limit) {
    const size_t n = v.size() < limit ? v.size() : limit;
    append(static_cast<uint16_t>(n));
    for (size_t i = 0; i < n; ++i) bytes_.push_back(static_cast<std::byte>(v[i]));
  }
  template <typename T>
  void list(const std::vector<T>& v, size_t limit) {
    const size_t n = v.size() < limit ? v.size() : limit;
    append(static_cast<uint16_t>(n));
    for (size_t i = 0; i < n; ++i) append(v[i]);
  }
  void rest(const std::vector<std::byte>& v) { bytes_.insert(bytes_.end(), v.begin(), v.end()); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <std::integral T>
  void append(T v) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof v);
    store_le(bytes_.data() + at, v);
  }
  std::vector<std::byte> bytes_;
};

// BodyReader reads fields from a body. After the first error it reads nothing more and status() holds the
// error.
class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> in) noexcept : in_(in) {}
  template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>) void operator()(T& v) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> raw{};
      take(raw);
      v = static_cast<T>(raw);
    } else {
      take(v);
    }
  }
  template <size_t N>
  void operator()(std::array<uint8_t, N>& v) {
    if (!need(N)) return;
    for (size_t i = 0; i < N; ++i) v[i] = std::to_integer<uint8_t>(in_[i]);
    in_ = in_.subspan(N);
  }
  void text(std::string& v, size_t limit) {
    uint16_t n = 0;
    take(n);
    if (n > limit) fail(Errc::kBadField);
    if (!need(n)) return;
    v.assign(reinterpret_cast<const char*>(in_.data()), n);
    in_ = in_.subspan(n);
  }
  template <typename T>
  void list(std::vector<T>& v, size_t limit) {
    uint16_t n = 0;
    take(n);
    if (n > limit) fail(Errc::kBadField);
    if (!need(size_t{n} * sizeof(T))) return;
    v.resize(n);
    for (T& item : v) take(item);
  }
  // Reads all remaining bytes, for messages whose proof covers the fields of later versions.
  void rest(std::vector<std::byte>& v) {
    if (!status_.ok()) return;
    v.assign(in_.begin(), in_.end());
    in_ = {};
  }
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] size_t left() const noexcept { return in_.size(); }

 private:
  void fail(Errc code) noexcept {
    if (status_.ok()) status_ = code;
  }
  bool need(size_t n) noexcept {
    if (!status_.ok()) return false;
    if (in_.size() < n) {
      fail(Errc::kBadLength);
      return false;
    }
    return true;
  }
  template <std::integral T>
  void take(T& v) noexcept {
    if (!need(sizeof(T))) return;
    v = load_le<T>(in_.data());
    in_ = in_.subspan(sizeof(T));
  }
  std::span<const std::byte> in_;
  Status status_;
};

}  // namespace sluice::wire
