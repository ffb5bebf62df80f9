// Names for things, as types that do not convert into each other.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

namespace sluice {

// 128 random bits that name one communicator of one job. Same on all ranks.
struct SessionId {
  std::array<uint8_t, 16> bytes{};
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 inside a defaulted <=> for a pointer
  friend auto operator<=>(const SessionId&, const SessionId&) = default;
};

// "3f2a...": 32 hex digits.
[[nodiscard]] std::string to_string(const SessionId& id);

using Rank = uint32_t;  // a worker's place in its session, 0..n-1

// Names an entry of a table with reuse: a handle whose generation is over is detected, not followed.
struct Handle {
  uint32_t index = 0;
  uint32_t generation = 0;
  friend bool operator==(Handle, Handle) = default;
};

}  // namespace sluice
