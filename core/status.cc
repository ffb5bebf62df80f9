#include "core/status.h"

namespace sluice {

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::kOk: return "ok";
    case Errc::kWouldBlock: return "would_block";
    case Errc::kClosed: return "closed";
    case Errc::kReset: return "reset";
    case Errc::kTimeout: return "timeout";
    case Errc::kBadMagic: return "bad_magic";
    case Errc::kBadVersion: return "bad_version";
    case Errc::kBadType: return "bad_type";
    case Errc::kBadHeaderCrc: return "bad_header_crc";
    case Errc::kBadPayloadCrc: return "bad_payload_crc";
    case Errc::kBadLength: return "bad_length";
    case Errc::kBadExtension: return "bad_extension";
    case Errc::kBadSession: return "bad_session";
    case Errc::kBadView: return "bad_view";
    case Errc::kBadSequence: return "bad_sequence";
    case Errc::kBadSlot: return "bad_slot";
    case Errc::kSlotNotGranted: return "slot_not_granted";
    case Errc::kBadDType: return "bad_dtype";
    case Errc::kBadOp: return "bad_op";
    case Errc::kBadKind: return "bad_kind";
    case Errc::kBadEncoding: return "bad_encoding";
    case Errc::kBadField: return "bad_field";
    case Errc::kUnexpectedMessage: return "unexpected_message";
    case Errc::kUnauthenticated: return "unauthenticated";
    case Errc::kRankTaken: return "rank_taken";
    case Errc::kMismatch: return "mismatch";
    case Errc::kMemoryLimit: return "memory_limit";
    case Errc::kDraining: return "draining";
    case Errc::kNoCommonVersion: return "no_common_version";
    case Errc::kJoinTimeout: return "join_timeout";
    case Errc::kUnknownSession: return "unknown_session";
    case Errc::kTooMany: return "too_many";
    case Errc::kPeerLost: return "peer_lost";
    case Errc::kRankLeft: return "rank_left";
    case Errc::kReducerLost: return "reducer_lost";
    case Errc::kAborted: return "aborted";
    case Errc::kOpTimeout: return "op_timeout";
    case Errc::kShutdown: return "shutdown";
    case Errc::kInvalidArgument: return "invalid_argument";
    case Errc::kUnsupported: return "unsupported";
    case Errc::kSystem: return "system";
    case Errc::kInternal: return "internal";
    case Errc::kExhausted: return "exhausted";
    case Errc::kAddressInUse: return "address_in_use";
  }
  return "unknown";
}

bool is_known(Errc code) noexcept {
  return to_string(code) != "unknown";
}

}  // namespace sluice
