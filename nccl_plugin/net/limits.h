// Limits (protocol.md section 13) and timeouts of the point-to-point network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/units.h"
#include "wire/frame.h"

namespace sluice::nccl::net {

inline constexpr uint64_t kMaxPieces = 4096;  // per message; the receiver keeps one bit for each
inline constexpr uint64_t kMaxMessageBytes = kMaxPieces * wire::kMaxPayload;

// For the TCP connects, and for the remaining streams once the first stream has arrived.
inline constexpr Nanos kSetupTimeout = 30 * kSecond;
// For the peer's process to connect or to answer. Its service thread may be blocked in another call of the
// plugin or in pinning memory. The handle shows that the process exists, and TCP shows that its host is up.
inline constexpr Nanos kPeerTimeout = 120 * kSecond;
// For a new connection to send the secret.
inline constexpr Nanos kHandshakeTimeout = 5 * kSecond;
// Connections that have not sent the secret; the oldest is dropped first.
inline constexpr size_t kMaxUnauthenticated = 64;

// A host that acknowledges no sent data for this time counts as lost. The transport's keepalive takes equally
// long when nothing is outstanding.
inline constexpr Nanos kAckTimeout = 120 * kSecond;
inline constexpr Nanos kAckCheckInterval = kSecond;

// For a sender to shut down in order; then its connections are reset.
inline constexpr Nanos kCloseTimeout = 5 * kSecond;

// A message up to kMaxWholeBytes is one piece. Larger messages are spread over the streams, in pieces of a
// few receive calls each.
inline constexpr uint64_t kMaxWholeBytes = 64 * kKiB;
inline constexpr uint64_t kLargePieceBytes = 512 * kKiB;

// Bytes of every piece but the last; 0 for an empty message.
[[nodiscard]] constexpr uint32_t piece_bytes(uint64_t message_bytes, unsigned streams) noexcept {
  if (message_bytes <= kMaxWholeBytes) return static_cast<uint32_t>(message_bytes);
  uint64_t piece = round_up(div_ceil(message_bytes, streams), 4 * kKiB);
  piece = std::clamp<uint64_t>(piece, kMaxWholeBytes, kLargePieceBytes);
  while (div_ceil(message_bytes, piece) > kMaxPieces) piece *= 2;
  return static_cast<uint32_t>(piece);
}
[[nodiscard]] constexpr uint64_t piece_count(uint64_t message_bytes, uint32_t piece) noexcept {
  return message_bytes == 0 ? 1 : div_ceil(message_bytes, piece);
}
static_assert(piece_bytes(kMaxMessageBytes, 1) == wire::kMaxPayload);

}  // namespace sluice::nccl::net
