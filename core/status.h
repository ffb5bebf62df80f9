// The words for "how did it end". Errc values travel in REFUSED and ABORT frames (wire/PROTOCOL.md, error
// codes), so a number, once given, is never reused.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice {

enum class Errc : uint16_t {
  kOk = 0,
  kWouldBlock = 1,  // normal: no credit or no queue space now, try again after progress
  kClosed = 2,      // the peer ended in order
  kReset = 3,       // the connection broke
  kTimeout = 4,     // a named deadline passed (docs/timeouts.md)
  // A peer's bytes were wrong: that endpoint is closed and the reason counted.
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
  // This process.
  kInvalidArgument = 80,
  kUnsupported = 81,
  kSystem = 82,
  kInternal = 83,
  kExhausted = 84,  // a table of fixed size is full
};

// Stable lower-case name, e.g. "bad_header_crc": the label of counters and the word in messages. "unknown"
// for numbers of a newer peer.
[[nodiscard]] std::string_view to_string(Errc code) noexcept;

// True for a number that this build knows; a peer may send any.
[[nodiscard]] bool is_known(Errc code) noexcept;

// One word, no text: the error of hot paths. Text is added where a person will read it (core/result.h).
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

// A peer's bytes broke the protocol: what a connection is closed with at once.
[[nodiscard]] constexpr bool is_bad_frame(Errc code) noexcept {
  return code >= Errc::kBadMagic && code <= Errc::kUnexpectedMessage;
}

}  // namespace sluice
