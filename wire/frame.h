// Codec of frames (protocol.md section 2): a fixed 64-byte header, then ext_len8 * 8 bytes of extensions,
// then `length` bytes of payload. The functions are pure and do not allocate. They check every field that can
// be checked without knowledge of the session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"
#include "wire/dtype.h"

namespace sluice::wire {

inline constexpr uint32_t kMagic = 0x43494C53;  // "SLIC" in byte order on the wire
inline constexpr uint8_t kVersionMin = 1;
inline constexpr uint8_t kVersionMax = 1;
inline constexpr size_t kHeaderBytes = 64;
// Largest payload of a control frame (every type but CONTRIBUTION, RESULT, PIECE and MODEL_DATA).
inline constexpr size_t kMaxControlPayload = 16 * 1024;
// Largest payload of any frame; a session agrees on a smaller limit, its slot size.
inline constexpr size_t kMaxPayload = 4 * 1024 * 1024;

enum class FrameType : uint8_t {
  // Handshake: the first frames of every connection.
  kHello = 1,
  kWelcome = 2,
  kJoin = 3,
  kJoined = 4,
  kAttach = 5,
  kAttached = 6,
  kRefused = 7,
  kPair = 8,
  kPaired = 9,
  // Control connection.
  kVote = 16,
  kVerdict = 17,
  kCommit = 18,
  kHeartbeat = 19,
  kLeave = 20,
  kLeaveAck = 21,
  kAbort = 22,
  kStatusQuery = 23,
  kStatusReply = 24,
  kVerdictQuery = 25,
  kGather = 26,
  kGathered = 27,
  // Lane connection.
  kContribution = 32,
  kResult = 33,
  // Point-to-point streams (protocol.md section 13).
  kStream = 40,
  kStreamAnswer = 41,
  kGrant = 42,
  kPiece = 43,
  kStreamOffer = 44,
  // Fault tolerance (protocol.md section 11).
  kResume = 48,
  kResumeAck = 49,
  kSuspect = 50,
  kViewQuery = 51,
  kViewAnswer = 52,
  kViewCommit = 53,
  kDrainNotice = 54,
  kViewKnown = 55,
  kRateChanges = 56,
  // Models (protocol.md section 16).
  kStore = 64,
  kStoreReady = 65,
  kModelQuery = 66,
  kModelAnswer = 67,
  kPush = 68,
  kPushStep = 69,
  kPushAnswer = 70,
  kPull = 71,
  kPullAnswer = 72,
  kCurrent = 73,
  kCurrentAnswer = 74,
  kInstall = 75,
  kStartModel = 76,
  kStep = 77,
  kCopyVersion = 78,
  kCommitted = 79,
  kDone = 80,
  kFailed = 81,
  kModelData = 82,
};
[[nodiscard]] bool is_known(FrameType t) noexcept;
[[nodiscard]] constexpr bool is_data(FrameType t) noexcept {
  return t == FrameType::kContribution || t == FrameType::kResult || t == FrameType::kPiece ||
         t == FrameType::kModelData;
}
[[nodiscard]] const char* to_string(FrameType t) noexcept;

// Bits of `flags`. Frames with unknown bits are refused (kBadField), so that a later version can define them.
inline constexpr uint16_t kFlagPayloadCrc = 1u << 0;  // payload_crc is valid and must match
inline constexpr uint16_t kFlagResent = 1u << 1;      // sent again after RESUME or a view change
inline constexpr uint16_t kFlagLosses = 1u << 2;      // the sender knows of lost packets of this session
inline constexpr uint16_t kFlagKept = 1u << 3;        // the payload of a CONTRIBUTION is the chunk's result
inline constexpr uint16_t kFlagAcceptsSparse = 1u << 4;  // in CONTRIBUTION: the RESULT may be sparse
inline constexpr uint16_t kKnownFlags =
    kFlagPayloadCrc | kFlagResent | kFlagLosses | kFlagKept | kFlagAcceptsSparse;

// The collective of a CONTRIBUTION or RESULT. In all but allreduce each chunk has an owner (protocol.md
// section 9, "Kinds").
enum class Kind : uint8_t {
  kNone = 0,
  kAllreduce = 1,
  kReduceScatter = 2,
  kAllGather = 3,
  kReduce = 4,
  kBroadcast = 5
};
[[nodiscard]] constexpr bool has_owner(Kind k) noexcept {
  return k > Kind::kAllreduce;
}
// The operation has a part for each rank, which owns the part's chunks.
[[nodiscard]] constexpr bool has_parts(Kind k) noexcept {
  return k == Kind::kReduceScatter || k == Kind::kAllGather;
}
// The owner alone contributes, and a copy is the result. Otherwise all ranks contribute.
[[nodiscard]] constexpr bool copies(Kind k) noexcept {
  return k == Kind::kAllGather || k == Kind::kBroadcast;
}
// Whether the rank's CONTRIBUTION and the RESULT for it have a payload.
[[nodiscard]] constexpr bool contributes(Kind k, uint32_t owner, uint32_t rank) noexcept {
  return !copies(k) || owner == rank;
}
[[nodiscard]] constexpr bool receives(Kind k, uint32_t owner, uint32_t rank) noexcept {
  return !has_owner(k) || (owner == rank) != copies(k);
}
// "allreduce", "reduce-scatter", ...; "?" for other values. NUL-terminated.
[[nodiscard]] const char* to_string(Kind k) noexcept;

// kSparse: wire/payload/sparse.h; the frame has the extension EXPANDED.
enum class Encoding : uint8_t { kPlain = 0, kSparse = 1 };

struct FrameHeader {
  uint8_t version = kVersionMax;
  FrameType type = FrameType::kHello;
  uint16_t flags = 0;
  uint8_t ext_len8 = 0;       // bytes of extensions / 8
  int8_t scale_exponent = 0;  // payload was multiplied by 2^scale_exponent (0 in version 1)
  uint16_t view_version = 0;
  uint32_t session = 0;    // the handle from JOINED; 0 before JOINED
  uint32_t view_hash = 0;  // low half of the 64-bit view hash
  uint16_t slot = 0;       // sequence mod W
  Kind kind = Kind::kNone;
  Encoding encoding = Encoding::kPlain;
  uint64_t sequence = 0;  // per lane connection, 0, 1, 2, ... within a view
  uint64_t chunk = 0;     // q: counts through the whole session and never restarts
  uint32_t op_id = 0;     // counts the operations of the session; wraps
  DType wire_dtype = DType::kI8;
  DType acc_dtype = DType::kI8;
  DType result_dtype = DType::kI8;
  Op op = Op::kSum;
  uint32_t length = 0;       // payload bytes
  uint32_t fingerprint = 0;  // of (count, dtype, op, kind); must be equal on all ranks
  uint32_t payload_crc = 0;  // CRC32C of the payload when kFlagPayloadCrc

  [[nodiscard]] size_t extension_bytes() const noexcept { return size_t{ext_len8} * 8; }
  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using HeaderBytes = std::span<std::byte, kHeaderBytes>;
using ConstHeaderBytes = std::span<const std::byte, kHeaderBytes>;

// Writes the 64 bytes; the header CRC covers bytes 0..59 and then `extensions` (ext_len8*8 bytes).
void encode_header(const FrameHeader& h, std::span<const std::byte> extensions, HeaderBytes out) noexcept;

// Step 1, as soon as the 64 bytes have arrived: checks magic, version, type, flags, enumerations and length
// limits. The header CRC also covers the extensions, so it is not checked yet: the lengths are bounded but
// may be wrong. Writes `out` only on kOk.
[[nodiscard]] Status decode_header(ConstHeaderBytes in, FrameHeader& out) noexcept;

// Step 2, when the extensions have arrived: checks the header CRC, then the framing of the extensions.
[[nodiscard]] Status verify_header(ConstHeaderBytes in, std::span<const std::byte> extensions) noexcept;

// The fingerprint of an operation: CRC32C over (count u64, wire dtype u8, op u8, kind u8, root u32, 1 zero
// byte), then over `piece_of`, which is not empty on rails. Only reduce and broadcast have a root.
[[nodiscard]] uint32_t fingerprint(uint64_t count, DType dtype, Op op, Kind kind, uint32_t root = 0,
                                   std::span<const std::byte> piece_of = {}) noexcept;

}  // namespace sluice::wire
