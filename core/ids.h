// Identifier types that do not convert into each other.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "core/text_encoding.h"

namespace sluice {

// 128 random bits that identify one communicator of one job. Equal on all ranks.
struct SessionId {
  std::array<uint8_t, 16> bytes{};
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 inside a defaulted <=> for a pointer
  friend auto operator<=>(const SessionId&, const SessionId&) = default;
};

// "3f2a...": 32 hex digits.
[[nodiscard]] inline std::string to_string(const SessionId& id) {
  return hex_text(id.bytes);
}

using Rank = uint32_t;  // index of a worker in its session, 0..n-1

// Identifies an entry of a table that reuses entries. A generation mismatch reveals an outdated handle.
struct Handle {
  uint32_t index = 0;
  uint32_t generation = 0;
  friend bool operator==(Handle, Handle) = default;
};

}  // namespace sluice
