#include "gpu_client/api/status_map.h"

namespace sluice::api {

sluice_status to_status(Errc code) noexcept {
  switch (code) {
    case Errc::kOk: return SLUICE_OK;
    case Errc::kWouldBlock:
    case Errc::kExhausted: return SLUICE_AGAIN;
    case Errc::kInvalidArgument: return SLUICE_INVALID_ARGUMENT;
    case Errc::kUnsupported: return SLUICE_UNSUPPORTED;
    case Errc::kUnauthenticated:
    case Errc::kRankTaken:
    case Errc::kMemoryLimit:
    case Errc::kDraining:
    case Errc::kNoCommonVersion:
    case Errc::kUnknownSession:
    case Errc::kTooMany: return SLUICE_REFUSED;
    case Errc::kTimeout:
    case Errc::kJoinTimeout:
    case Errc::kOpTimeout: return SLUICE_TIMEOUT;
    case Errc::kMismatch: return SLUICE_MISMATCH;
    case Errc::kReset:
    case Errc::kPeerLost:
    case Errc::kReducerLost:
    case Errc::kAborted:
    case Errc::kShutdown: return SLUICE_LOST;
    case Errc::kClosed:
    case Errc::kRankLeft: return SLUICE_CLOSED;
    case Errc::kBadMagic:
    case Errc::kBadVersion:
    case Errc::kBadType:
    case Errc::kBadHeaderCrc:
    case Errc::kBadPayloadCrc:
    case Errc::kBadLength:
    case Errc::kBadExtension:
    case Errc::kBadSession:
    case Errc::kBadView:
    case Errc::kBadSequence:
    case Errc::kBadSlot:
    case Errc::kSlotNotGranted:
    case Errc::kBadDType:
    case Errc::kBadOp:
    case Errc::kBadKind:
    case Errc::kBadEncoding:
    case Errc::kBadField:
    case Errc::kUnexpectedMessage: return SLUICE_PROTOCOL;
    case Errc::kAddressInUse:
    case Errc::kSystem: return SLUICE_SYSTEM;
    case Errc::kInternal: return SLUICE_INTERNAL;
  }
  return SLUICE_LOST;  // a code of a newer reducer
}

}  // namespace sluice::api
