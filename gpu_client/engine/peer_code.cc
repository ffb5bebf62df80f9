#include "gpu_client/engine/peer_code.h"

namespace sluice::engine {
namespace {

// "local, not sent"
bool is_local(Errc code) noexcept {
  return code >= Errc::kInvalidArgument && code <= Errc::kExhausted;
}

}  // namespace

Errc from_peer(Errc code) noexcept {
  const bool says_nothing = code == Errc::kOk || code == Errc::kWouldBlock || !is_known(code);
  return says_nothing || is_local(code) ? Errc::kAborted : code;
}

Errc for_peer(Errc code) noexcept {
  return is_local(code) ? Errc::kAborted : code;
}

}  // namespace sluice::engine
