// Encodes and decodes control messages. A message type M has kType, kMayGrow and visit(), which lists its
// fields once, in wire order. BodyWriter and BodyReader both visit that list, so encoder and decoder cannot
// differ. Integers are little-endian; a text is a u16 length and bytes; a list is a u16 count and items. Not
// for each frame of data: encoding allocates, and decoding allocates texts and lists, up to the limits in the
// message.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "wire/frame.h"

namespace sluice::wire {

template <typename T>
concept Scalar = std::integral<T> || std::is_enum_v<T>;

// BodyWriter appends fields to a body.
class BodyWriter {
 public:
  template <Scalar T>
  void operator()(const T& v) {
    if constexpr (std::is_enum_v<T>) {
      (*this)(static_cast<std::underlying_type_t<T>>(v));
    } else {
      const size_t at = bytes_.size();
      bytes_.resize(at + sizeof v);
      store_le(bytes_.data() + at, v);
    }
  }
  template <size_t N>
  void operator()(const std::array<uint8_t, N>& v) {
    append(std::as_bytes(std::span(v)));
  }
  // Truncates a text at `limit`: texts are for people, and a missing end must not fail the message.
  void text(const std::string& v, size_t limit) {
    const size_t n = std::min(v.size(), limit);
    (*this)(static_cast<uint16_t>(n));
    append(std::as_bytes(std::span(v)).first(n));
  }
  template <typename T>
  void list(const std::vector<T>& v, size_t limit) {
    const size_t n = std::min(v.size(), limit);
    (*this)(static_cast<uint16_t>(n));
    for (size_t i = 0; i < n; ++i) (*this)(v[i]);
  }
  // A field of a later version, which a message of an earlier one does not have. Only behind all other
  // fields.
  template <Scalar T>
  void appended(const std::optional<T>& v) {
    if (v) (*this)(*v);
  }
  void rest(const std::vector<std::byte>& v) { append(v); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> v) { bytes_.insert(bytes_.end(), v.begin(), v.end()); }
  std::vector<std::byte> bytes_;
};

// BodyReader reads fields from a body. After the first error it reads nothing more and status() holds the
// error.
class BodyReader {
 public:
  explicit BodyReader(std::span<const std::byte> in) noexcept : in_(in) {}
  template <Scalar T>
  void operator()(T& v) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> raw{};
      (*this)(raw);
      v = static_cast<T>(raw);
    } else if (const auto bytes = take(sizeof(T)); !bytes.empty()) {
      v = load_le<T>(bytes.data());
    }
  }
  template <size_t N>
  void operator()(std::array<uint8_t, N>& v) {
    if (const auto bytes = take(N); !bytes.empty()) std::memcpy(v.data(), bytes.data(), N);
  }
  void text(std::string& v, size_t limit) {
    const auto bytes = take(length(limit));
    v.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename T>
  void list(std::vector<T>& v, size_t limit) {
    const size_t n = length(limit);
    if (!has(n * sizeof(T))) return;
    v.resize(n);
    for (T& item : v) (*this)(item);
  }
  // Nothing if the body ends before the field.
  template <Scalar T>
  void appended(std::optional<T>& v) {
    v.reset();
    if (status_.ok() && !in_.empty()) (*this)(v.emplace());
  }
  // Reads all remaining bytes, for messages whose proof covers the fields of later versions.
  void rest(std::vector<std::byte>& v) {
    const auto bytes = take(in_.size());
    v.assign(bytes.begin(), bytes.end());
  }
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] size_t left() const noexcept { return in_.size(); }

 private:
  void fail(Errc code) noexcept {
    if (status_.ok()) status_ = code;
  }
  bool has(size_t n) noexcept {
    if (in_.size() < n) fail(Errc::kBadLength);
    return status_.ok();
  }
  // The next n bytes; none after an error.
  std::span<const std::byte> take(size_t n) noexcept {
    if (!has(n)) return {};
    const auto bytes = in_.first(n);
    in_ = in_.subspan(n);
    return bytes;
  }
  // The length of a text or list.
  size_t length(size_t limit) noexcept {
    uint16_t n = 0;
    (*this)(n);
    if (n > limit) fail(Errc::kBadField);
    return n;
  }
  std::span<const std::byte> in_;
  Status status_;
};

template <typename M>
[[nodiscard]] std::vector<std::byte> encode_body(const M& m) {
  BodyWriter w;
  M::visit(m, w);
  return w.take();
}

// kBadLength when the body is too short, or too long for a message that must not grow. kBadField when a text
// or list exceeds its limit. Writes `out` only on kOk.
template <typename M>
[[nodiscard]] Status decode_body(std::span<const std::byte> in, M& out) {
  M m;
  BodyReader r(in);
  M::visit(m, r);
  if (!r.status().ok()) return r.status();
  if (r.left() != 0 && !M::kMayGrow) return Errc::kBadLength;
  out = std::move(m);
  return Errc::kOk;
}

// Header of a control frame with this body, for a transport that accepts header and payload separately.
[[nodiscard]] FrameHeader control_header(FrameType type, std::span<const std::byte> body,
                                         uint32_t session) noexcept;
// A whole control frame: header with CRCs, then the body.
[[nodiscard]] std::vector<std::byte> frame_control(FrameType type, std::span<const std::byte> body,
                                                   uint32_t session, uint8_t version);

// A whole control frame, ready to send.
template <typename M>
[[nodiscard]] std::vector<std::byte> encode_message(const M& m, uint32_t session = 0,
                                                    uint8_t version = kVersionMax) {
  const auto body = encode_body(m);
  return frame_control(M::kType, body, session, version);
}

}  // namespace sluice::wire
