// Status codes. Errc values are sent in REFUSED and ABORT frames (docs/reference/protocol.md, error codes),
// so a number is never reused.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class Errc : uint16_t {
  kOk = 0,
  kWouldBlock = 1,  // normal: no credit or queue space now; try again after progress
  kClosed = 2,      // the peer closed the connection in order
  kReset = 3,       // the connection broke
  kTimeout = 4,     // a named deadline passed (docs/reference/configuration.md)
  // Protocol violations of a peer: the endpoint is closed and the reason counted.
  kBadMagic = 16,
  kBadVersion = 17,
  kBadType = 18,
  kBadHeaderCrc = 19,
  kBadPayloadCrc = 20,
  kBadLength = 21,
  kBadExtension = 22,
  kBadSession = 23,
  kBadView = 24,
  kBadSequence = 25,
  kBadSlot = 26,
  kSlotNotGranted = 27,
  kBadDType = 28,
  kBadOp = 29,
  kBadKind = 30,
  kBadEncoding = 31,
  kBadField = 32,  // a reserved bit set, a rank out of range, a text too long
  kUnexpectedMessage = 33,
  // Refused at join.
  kUnauthenticated = 48,
  kRankTaken = 49,
  kMismatch = 50,  // ranks disagree: on n, view, chunk, or on the dtype, op or count of an operation
  kMemoryLimit = 51,
  kDraining = 52,
  kNoCommonVersion = 53,
  kJoinTimeout = 54,
  kUnknownSession = 55,
  kTooMany = 56,  // a documented limit: ranks, lanes, connections
  // A session ended.
  kPeerLost = 64,
  kRankLeft = 65,
  kReducerLost = 66,
  kAborted = 67,
  kOpTimeout = 68,
  kShutdown = 69,
  // Local errors.
  kInvalidArgument = 80,
  kUnsupported = 81,
  kSystem = 82,
  kInternal = 83,
  kExhausted = 84,     // a fixed-size table is full
  kAddressInUse = 85,  // another process listens on the port
};

// The stable lower-case name, such as "bad_header_crc", for metric labels and messages. "unknown" for a
// number of a newer peer.
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

// True for a number that this build knows. A peer may send any number.
[[nodiscard]] bool is_known(Errc code) noexcept;

// Status is an error code without text, for hot paths. Cold code adds text (core/result.h).
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): implicit by design, `return Errc::kBadSlot;`
  constexpr Status(Errc code) noexcept : code_(code) {}
  [[nodiscard]] constexpr bool ok() const noexcept { return code_ == Errc::kOk; }
  [[nodiscard]] constexpr Errc code() const noexcept { return code_; }
  friend constexpr bool operator==(Status, Status) noexcept = default;

 private:
  Errc code_ = Errc::kOk;
};

// True for protocol violations, which close a connection at once.
[[nodiscard]] constexpr bool is_bad_frame(Errc code) noexcept {
  return code >= Errc::kBadMagic && code <= Errc::kUnexpectedMessage;
}

}  // namespace sluice
