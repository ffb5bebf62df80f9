// Conversion of error codes and error texts that cross the network. Some codes of Errc are local to a
// process (protocol.md section 12). A local code from a peer must not look like an error of this library.
#pragma once

#include <string>

#include "core/status.h"

namespace sluice::engine {

// The code of a peer's error in this process: the same one, or kAborted for codes that are unknown, local,
// kOk or kWouldBlock.
[[nodiscard]] Errc code_from_peer(Errc code) noexcept;

// The code to send to a peer: the same one, or kAborted for local codes. The text explains the cause.
[[nodiscard]] Errc code_for_peer(Errc code) noexcept;

// A peer's text with each control character replaced by a space, so that it stays on one line of a message.
[[nodiscard]] std::string replace_control_characters(std::string text);

}  // namespace sluice::engine
