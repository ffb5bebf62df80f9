// Numbers of the point-to-point net: limits of PROTOCOL.md section 13, and how long things may take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/units.h"
#include "wire/frame.h"

namespace sluice::nccl::net {

inline constexpr unsigned kMaxStreams = 16;
inline constexpr uint64_t kMaxPieces = 4096;  // of one message: each is a bit at the receiver
inline constexpr uint64_t kMaxMessageBytes = kMaxPieces * wire::kMaxPayload;

// A TCP connect, and the handshake once its first stream is there.
inline constexpr Nanos kSetupDeadline = 30 * kSecond;
// Until the other side begins, or answers. Its service thread may be held up by another plugin call or by the
// pinning of memory; that it is there is known from its handle, and that its host is, from TCP.
inline constexpr Nanos kPeerDeadline = 120 * kSecond;
// Of a connection that has not shown the secret.
inline constexpr Nanos kStrangerDeadline = 5 * kSecond;
// Connections that may stand there without having shown it; the oldest goes first.
inline constexpr size_t kMaxStrangers = 64;

// A host that acknowledges nothing of what is sent to it for so long is gone; the same time that the
// transport's keepalive takes where nothing is outstanding. And how often that is looked at.
inline constexpr Nanos kVanishedAfter = 120 * kSecond;
inline constexpr Nanos kSilenceLook = kSecond;

// A sender's end in order; after it the connections are cut.
inline constexpr Nanos kCloseDeadline = 5 * kSecond;

// Pieces: small messages whole, others spread over the streams, large ones in pieces of a few receive calls
// each.
inline constexpr uint64_t kWholeBytes = 64 * kKiB;
inline constexpr uint64_t kLargePieceBytes = 512 * kKiB;

// Bytes of every piece but the last; 0 for a message of 0 bytes.
[[nodiscard]] constexpr uint32_t piece_bytes(uint64_t message_bytes, unsigned streams) noexcept {
  if (message_bytes <= kWholeBytes) return static_cast<uint32_t>(message_bytes);
  uint64_t piece = round_up(div_ceil(message_bytes, streams), 4 * kKiB);
  piece = std::clamp<uint64_t>(piece, kWholeBytes, kLargePieceBytes);
  while (div_ceil(message_bytes, piece) > kMaxPieces) piece *= 2;
  return static_cast<uint32_t>(piece);
}
[[nodiscard]] constexpr uint64_t piece_count(uint64_t message_bytes, uint32_t piece) noexcept {
  return message_bytes == 0 ? 1 : div_ceil(message_bytes, piece);
}
static_assert(piece_bytes(kMaxMessageBytes, 1) == wire::kMaxPayload);

}  // namespace sluice::nccl::net
