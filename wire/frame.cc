#include "wire/frame.h"

#include <array>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "wire/extension.h"

namespace sluice::wire {
namespace {

// Offsets of protocol.md section 2.
enum Offset : size_t {
  kAtMagic = 0,
  kAtVersion = 4,
  kAtType = 5,
  kAtFlags = 6,
  kAtExtLen = 8,
  kAtScale = 9,
  kAtViewVersion = 10,
  kAtSession = 12,
  kAtViewHash = 16,
  kAtSlot = 20,
  kAtKind = 22,
  kAtEncoding = 23,
  kAtSequence = 24,
  kAtChunk = 32,
  kAtOpId = 40,
  kAtWireDType = 44,
  kAtAccDType = 45,
  kAtResultDType = 46,
  kAtOp = 47,
  kAtLength = 48,
  kAtFingerprint = 52,
  kAtPayloadCrc = 56,
  kAtHeaderCrc = 60,
};
static_assert(kAtHeaderCrc + 4 == kHeaderBytes);

uint32_t header_crc(ConstHeaderBytes header, std::span<const std::byte> extensions) noexcept {
  return crc32c(extensions, crc32c(header.first(kAtHeaderCrc)));
}

uint8_t u8_at(ConstHeaderBytes in, size_t offset) noexcept {
  return std::to_integer<uint8_t>(in[offset]);
}

// Checks the fields that only CONTRIBUTION and RESULT use.
Status check_reduction_fields(const FrameHeader& h) noexcept {
  if (h.kind == Kind::kNone || h.kind > Kind::kBroadcast) return Errc::kBadKind;
  if (h.encoding > Encoding::kSparse) return Errc::kBadEncoding;
  if (!is_valid(h.wire_dtype) || !is_valid(h.acc_dtype) || !is_valid(h.result_dtype)) return Errc::kBadDType;
  if (h.acc_dtype != accumulator_of(h.wire_dtype) || h.result_dtype != h.wire_dtype) return Errc::kBadDType;
  if (!is_valid(h.op) || !is_supported(h.wire_dtype, h.op)) return Errc::kBadOp;
  if (h.scale_exponent != 0) return Errc::kBadEncoding;
  if (h.length == 0 && !has_owner(h.kind)) return Errc::kBadLength;
  if (h.length > kMaxPayload) return Errc::kBadLength;
  if (h.encoding == Encoding::kSparse) return h.length > 0 ? Errc::kOk : Errc::kBadLength;
  if (h.length % size_of(h.wire_dtype) != 0) return Errc::kBadLength;
  return Errc::kOk;
}

// Checks that all other frames leave these fields at 0.
Status check_plain_fields(const FrameHeader& h) noexcept {
  if (h.kind != Kind::kNone) return Errc::kBadKind;
  if (h.encoding != Encoding::kPlain || h.scale_exponent != 0) return Errc::kBadEncoding;
  if (h.type == FrameType::kPiece || h.type == FrameType::kModelData)
    return h.length <= kMaxPayload ? Errc::kOk : Errc::kBadLength;
  if (h.type == FrameType::kGrant) return h.length == 0 ? Errc::kOk : Errc::kBadLength;
  return h.length <= kMaxControlPayload ? Errc::kOk : Errc::kBadLength;
}

}  // namespace

bool is_known(FrameType t) noexcept {
  return to_string(t)[0] != '?';
}

const char* to_string(FrameType t) noexcept {
  switch (t) {
    case FrameType::kHello: return "HELLO";
    case FrameType::kWelcome: return "WELCOME";
    case FrameType::kJoin: return "JOIN";
    case FrameType::kJoined: return "JOINED";
    case FrameType::kAttach: return "ATTACH";
    case FrameType::kAttached: return "ATTACHED";
    case FrameType::kRefused: return "REFUSED";
    case FrameType::kPair: return "PAIR";
    case FrameType::kPaired: return "PAIRED";
    case FrameType::kVote: return "VOTE";
    case FrameType::kVerdict: return "VERDICT";
    case FrameType::kCommit: return "COMMIT";
    case FrameType::kHeartbeat: return "HEARTBEAT";
    case FrameType::kLeave: return "LEAVE";
    case FrameType::kLeaveAck: return "LEAVE_ACK";
    case FrameType::kAbort: return "ABORT";
    case FrameType::kStatusQuery: return "STATUS_QUERY";
    case FrameType::kStatusReply: return "STATUS_REPLY";
    case FrameType::kVerdictQuery: return "VERDICT_QUERY";
    case FrameType::kGather: return "GATHER";
    case FrameType::kGathered: return "GATHERED";
    case FrameType::kContribution: return "CONTRIBUTION";
    case FrameType::kResult: return "RESULT";
    case FrameType::kStream: return "STREAM";
    case FrameType::kStreamAnswer: return "STREAM_ANSWER";
    case FrameType::kGrant: return "GRANT";
    case FrameType::kPiece: return "PIECE";
    case FrameType::kStreamOffer: return "STREAM_OFFER";
    case FrameType::kResume: return "RESUME";
    case FrameType::kResumeAck: return "RESUME_ACK";
    case FrameType::kSuspect: return "SUSPECT";
    case FrameType::kViewQuery: return "VIEW_QUERY";
    case FrameType::kViewAnswer: return "VIEW_ANSWER";
    case FrameType::kViewCommit: return "VIEW_COMMIT";
    case FrameType::kDrainNotice: return "DRAIN_NOTICE";
    case FrameType::kViewKnown: return "VIEW_KNOWN";
    case FrameType::kRateChanges: return "RATE_CHANGES";
    case FrameType::kStore: return "STORE";
    case FrameType::kStoreReady: return "STORE_READY";
    case FrameType::kModelQuery: return "MODEL_QUERY";
    case FrameType::kModelAnswer: return "MODEL_ANSWER";
    case FrameType::kPush: return "PUSH";
    case FrameType::kPushStep: return "PUSH_STEP";
    case FrameType::kPushAnswer: return "PUSH_ANSWER";
    case FrameType::kPull: return "PULL";
    case FrameType::kPullAnswer: return "PULL_ANSWER";
    case FrameType::kCurrent: return "CURRENT";
    case FrameType::kCurrentAnswer: return "CURRENT_ANSWER";
    case FrameType::kInstall: return "INSTALL";
    case FrameType::kStartModel: return "START_MODEL";
    case FrameType::kStep: return "STEP";
    case FrameType::kCopyVersion: return "COPY_VERSION";
    case FrameType::kCommitted: return "COMMITTED";
    case FrameType::kDone: return "DONE";
    case FrameType::kFailed: return "FAILED";
    case FrameType::kModelData: return "MODEL_DATA";
  }
  return "?";
}

const char* to_string(Kind k) noexcept {
  switch (k) {
    case Kind::kNone: break;
    case Kind::kAllreduce: return "allreduce";
    case Kind::kReduceScatter: return "reduce-scatter";
    case Kind::kAllGather: return "all-gather";
    case Kind::kReduce: return "reduce";
    case Kind::kBroadcast: return "broadcast";
  }
  return "?";
}

void encode_header(const FrameHeader& h, std::span<const std::byte> extensions, HeaderBytes out) noexcept {
  std::byte* p = out.data();
  store_le(p + kAtMagic, kMagic);
  store_le(p + kAtVersion, h.version);
  store_le(p + kAtType, static_cast<uint8_t>(h.type));
  store_le(p + kAtFlags, h.flags);
  store_le(p + kAtExtLen, h.ext_len8);
  store_le(p + kAtScale, h.scale_exponent);
  store_le(p + kAtViewVersion, h.view_version);
  store_le(p + kAtSession, h.session);
  store_le(p + kAtViewHash, h.view_hash);
  store_le(p + kAtSlot, h.slot);
  store_le(p + kAtKind, static_cast<uint8_t>(h.kind));
  store_le(p + kAtEncoding, static_cast<uint8_t>(h.encoding));
  store_le(p + kAtSequence, h.sequence);
  store_le(p + kAtChunk, h.chunk);
  store_le(p + kAtOpId, h.op_id);
  store_le(p + kAtWireDType, static_cast<uint8_t>(h.wire_dtype));
  store_le(p + kAtAccDType, static_cast<uint8_t>(h.acc_dtype));
  store_le(p + kAtResultDType, static_cast<uint8_t>(h.result_dtype));
  store_le(p + kAtOp, static_cast<uint8_t>(h.op));
  store_le(p + kAtLength, h.length);
  store_le(p + kAtFingerprint, h.fingerprint);
  store_le(p + kAtPayloadCrc, h.payload_crc);
  store_le(p + kAtHeaderCrc, header_crc(out, extensions));
}

Status decode_header(ConstHeaderBytes in, FrameHeader& out) noexcept {
  const std::byte* p = in.data();
  if (load_le<uint32_t>(p + kAtMagic) != kMagic) return Errc::kBadMagic;
  FrameHeader h;
  h.version = u8_at(in, kAtVersion);
  h.type = static_cast<FrameType>(u8_at(in, kAtType));
  // HELLO and REFUSED of any version are readable, so that a refusal can name both version ranges.
  const bool any_version = h.type == FrameType::kHello || h.type == FrameType::kRefused;
  if (h.version == 0 || (!any_version && (h.version < kVersionMin || h.version > kVersionMax)))
    return Errc::kBadVersion;
  if (!is_known(h.type)) return Errc::kBadType;
  h.flags = load_le<uint16_t>(p + kAtFlags);
  if ((h.flags & ~kKnownFlags) != 0) return Errc::kBadField;
  h.ext_len8 = u8_at(in, kAtExtLen);
  h.scale_exponent = load_le<int8_t>(p + kAtScale);
  h.view_version = load_le<uint16_t>(p + kAtViewVersion);
  h.session = load_le<uint32_t>(p + kAtSession);
  h.view_hash = load_le<uint32_t>(p + kAtViewHash);
  h.slot = load_le<uint16_t>(p + kAtSlot);
  h.kind = static_cast<Kind>(u8_at(in, kAtKind));
  h.encoding = static_cast<Encoding>(u8_at(in, kAtEncoding));
  h.sequence = load_le<uint64_t>(p + kAtSequence);
  h.chunk = load_le<uint64_t>(p + kAtChunk);
  h.op_id = load_le<uint32_t>(p + kAtOpId);
  h.wire_dtype = static_cast<DType>(u8_at(in, kAtWireDType));
  h.acc_dtype = static_cast<DType>(u8_at(in, kAtAccDType));
  h.result_dtype = static_cast<DType>(u8_at(in, kAtResultDType));
  h.op = static_cast<Op>(u8_at(in, kAtOp));
  h.length = load_le<uint32_t>(p + kAtLength);
  h.fingerprint = load_le<uint32_t>(p + kAtFingerprint);
  h.payload_crc = load_le<uint32_t>(p + kAtPayloadCrc);
  const bool reduction = h.type == FrameType::kContribution || h.type == FrameType::kResult;
  if (const Status s = reduction ? check_reduction_fields(h) : check_plain_fields(h); !s.ok()) return s;
  out = h;
  return Errc::kOk;
}

Status verify_header(ConstHeaderBytes in, std::span<const std::byte> extensions) noexcept {
  if (load_le<uint32_t>(in.data() + kAtHeaderCrc) != header_crc(in, extensions)) return Errc::kBadHeaderCrc;
  return check_extensions(extensions);
}

uint32_t fingerprint(uint64_t count, DType dtype, Op op, Kind kind, uint32_t root,
                     std::span<const std::byte> piece_of) noexcept {
  std::array<std::byte, 16> bytes{};
  store_le(bytes.data(), count);
  bytes[8] = static_cast<std::byte>(dtype);
  bytes[9] = static_cast<std::byte>(op);
  bytes[10] = static_cast<std::byte>(kind);
  store_le(bytes.data() + 11, root);
  return crc32c(piece_of, crc32c(bytes));
}

}  // namespace sluice::wire
