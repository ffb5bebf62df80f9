// How long each state of a connection to models may last (protocol.md section 16). A peer that takes longer
// is disconnected, and counted under the state's name. The states before STORE_READY are those of every
// connection to a reducer: --handshake-timeout ends them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/units.h"
#include "store/server/limits/version_reader.h"

namespace sluice::store {

enum class ConnectionState : uint8_t {
  kGreeting,   // STORE_READY is being sent
  kIdle,       // no byte of a request is there
  kRequest,    // a request has begun to arrive; its body does not belong to it
  kReceiving,  // a body arrives
  kAnswering,  // the peer has to take an answer
  kSending,    // the peer has to take a body
};
inline constexpr std::array<std::string_view, 6> kConnectionStateNames = {
    "greeting", "idle", "request", "receiving", "answering", "sending"};

struct Deadlines {
  // Of kReceiving and kSending: each frame of a body.
  std::array<Nanos, kConnectionStateNames.size()> of_state = {10 * kSecond, 3600 * kSecond, 10 * kSecond,
                                                              10 * kSecond, 10 * kSecond,   10 * kSecond};
  // A whole body: this time, and its size at the rate. What the reducer itself waits for does not count.
  Nanos body = 30 * kSecond;
  uint64_t body_rate = 256 * kKiB;  // bytes/s
  // Of one request that waits for a step or a version. Clients ask again.
  Nanos wait = 60 * kSecond;
  ReaderLimits reader;  // whose place a step needs

  [[nodiscard]] Nanos of(ConnectionState state) const noexcept {
    return of_state[static_cast<size_t>(state)];
  }
};

}  // namespace sluice::store
