// What a message's visit() names, seen by tests: as texts that can be compared and read, as a layout, and
// filled with random values.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "wire/messages.h"

namespace sluice::test {

inline std::string hex_text(const std::byte* data, size_t size) {
  std::string out;
  std::array<char, 3> digits{};
  for (size_t i = 0; i < size; ++i) {
    std::snprintf(digits.data(), digits.size(), "%02x", std::to_integer<unsigned>(data[i]));
    out += digits.data();
  }
  return out;
}

// One text for each field.
class FieldTexts {
 public:
  template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>) void operator()(const T& v) {
    texts.push_back(std::to_string(static_cast<uint64_t>(v)));
  }
  template <size_t N>
  void operator()(const std::array<uint8_t, N>& v) {
    texts.push_back(hex_text(reinterpret_cast<const std::byte*>(v.data()), N));
  }
  void text(const std::string& v, size_t) { texts.push_back('"' + v + '"'); }
  template <typename T>
  void list(const std::vector<T>& v, size_t) {
    std::string out = "[";
    for (const T& item : v) out += std::to_string(item) + ' ';
    texts.push_back(out + ']');
  }
  template <typename T>
  void appended(const std::optional<T>& v) {
    texts.push_back(v ? std::to_string(*v) : "missing");
  }
  void rest(const std::vector<std::byte>& v) { texts.push_back("later " + hex_text(v.data(), v.size())); }

  std::vector<std::string> texts;
};

template <typename M>
std::vector<std::string> fields_of(const M& message) {
  FieldTexts fields;
  M::visit(message, fields);
  return fields.texts;
}

// How each field is written in the table of protocol.md section 4: "u16", "32 B", "text(128)", "list of u64
// (at most 1024)".
class FieldLayout {
 public:
  template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>) void operator()(const T&) { layout.push_back(name<T>()); }
  template <size_t N>
  void operator()(const std::array<uint8_t, N>&) {
    layout.push_back(std::to_string(N) + " B");
  }
  void text(const std::string&, size_t limit) { layout.push_back("text(" + std::to_string(limit) + ")"); }
  template <typename T>
  void list(const std::vector<T>&, size_t limit) {
    layout.push_back("list of " + name<T>() + " (at most " + std::to_string(limit) + ")");
  }
  template <typename T>
  void appended(const std::optional<T>&) {
    layout.push_back(name<T>());
  }
  void rest(const std::vector<std::byte>&) {}

  std::vector<std::string> layout;

 private:
  template <typename T>
  static std::string name() {
    return "u" + std::to_string(8 * sizeof(T));
  }
};

// Any value in every field, texts and lists of any length up to their limit.
class RandomFields {
 public:
  explicit RandomFields(std::mt19937_64& random) : random_(random) {}
  template <typename T>
  requires(std::integral<T> || std::is_enum_v<T>) void operator()(T& v) { v = static_cast<T>(random_()); }
  template <size_t N>
  void operator()(std::array<uint8_t, N>& v) {
    for (uint8_t& b : v) b = static_cast<uint8_t>(random_());
  }
  void text(std::string& v, size_t limit) {
    v.resize(random_() % (limit + 1));
    for (char& c : v) c = static_cast<char>(random_());
  }
  template <typename T>
  void list(std::vector<T>& v, size_t limit) {
    v.resize(random_() % (limit + 1));
    for (T& item : v) item = static_cast<T>(random_());
  }
  template <typename T>
  void appended(std::optional<T>& v) {
    v = static_cast<T>(random_());
  }
  void rest(std::vector<std::byte>&) {}

 private:
  std::mt19937_64& random_;
};

}  // namespace sluice::test
