#include "gpu_client/engine/base/peer_error.h"

namespace sluice::engine {
namespace {

// Codes that protocol.md lists as "local, not sent".
bool is_local(Errc code) noexcept {
  return code >= Errc::kInvalidArgument && code <= Errc::kAddressInUse;
}

}  // namespace

Errc code_from_peer(Errc code) noexcept {
  const bool is_no_error = code == Errc::kOk || code == Errc::kWouldBlock || !is_known(code);
  return is_no_error || is_local(code) ? Errc::kAborted : code;
}

Errc code_for_peer(Errc code) noexcept {
  return is_local(code) ? Errc::kAborted : code;
}

std::string replace_control_characters(std::string text) {
  for (char& c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < ' ' || u == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace sluice::engine
