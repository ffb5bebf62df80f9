// Computes the memory that a session needs at a reducer when workers use their defaults, as described in
// docs/guides/operate.md, "Memory". The reducer and the protocol define the numbers, but this folder may not
// include them; tests/unit/config/sizing compares both.
#pragma once

#include <cstdint>

namespace sluice::config {

// Limits of one session: ranks, reducers, and lane connections of one rank to one reducer
// (docs/reference/protocol.md).
inline constexpr uint64_t kMaxRanks = 2048;
inline constexpr uint64_t kMaxReducers = 1024;
inline constexpr uint64_t kMaxLanes = 64;
// Default of the reducer's --lanes-per-session.
inline constexpr uint64_t kDefaultLanes = 2;

// Returns the bytes that one session of `ranks` reserves at each of `reducers`. Each rank opens `lanes`
// connections to each reducer, with a window of 2 MiB and the slot size that workers choose.
[[nodiscard]] uint64_t session_bytes(uint64_t ranks, uint64_t reducers, uint64_t lanes) noexcept;

// Returns an upper bound of a reducer's resident memory.
[[nodiscard]] uint64_t resident_bytes(uint64_t sessions, uint64_t ranks, uint64_t lanes,
                                      uint64_t bytes_per_session) noexcept;

}  // namespace sluice::config
