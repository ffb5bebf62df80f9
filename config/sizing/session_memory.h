// What a session takes of a reducer's memory with the defaults of workers: the sum of docs/operations.md,
// "Memory". The reducer and the protocol own the numbers; tests/unit/config/sizing holds this to theirs,
// since this room may not include them.
#pragma once

#include <cstdint>

namespace sluice::config {

// Ranks of one session, reducers of one session, lane connections of a rank to one reducer: PROTOCOL.md.
inline constexpr uint64_t kMostRanks = 2048;
inline constexpr uint64_t kMostReducers = 1024;
inline constexpr uint64_t kMostLanes = 64;
// What a reducer offers unless told otherwise (--lanes-per-session).
inline constexpr uint64_t kDefaultLanes = 2;

// Bytes that one session of `ranks` reserves at each of `reducers`, each rank with `lanes` connections to
// each, a window of 2 MiB and slots as large as workers choose them.
[[nodiscard]] uint64_t session_bytes(uint64_t ranks, uint64_t reducers, uint64_t lanes) noexcept;

// Resident memory of a reducer stays below this.
[[nodiscard]] uint64_t resident_bytes(uint64_t sessions, uint64_t ranks, uint64_t lanes,
                                      uint64_t bytes_of_session) noexcept;

}  // namespace sluice::config
