#include "nccl_plugin/abi/results.h"

#include "nccl_plugin/host/log.h"

namespace sluice::nccl::abi {

Result log_result(const char* entry, Status status) noexcept {
  if (!status.ok()) warn("%s: %s", entry, to_string(status.code()).data());
  return to_result(status);
}

Result to_result(Status status) noexcept {
  switch (status.code()) {
    case Errc::kOk: return kSuccess;
    case Errc::kClosed:
    case Errc::kReset:
    case Errc::kTimeout:
    case Errc::kPeerLost:
    case Errc::kReducerLost:
    case Errc::kAborted:
    case Errc::kRankLeft: return kRemoteError;
    case Errc::kInvalidArgument: return kInvalidArgument;
    case Errc::kInternal: return kInternalError;
    default: return kSystemError;
  }
}

}  // namespace sluice::nccl::abi
