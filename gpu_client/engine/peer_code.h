// Error numbers on their way through the network. Some of Errc's numbers mean something to this process only
// (PROTOCOL.md section 12): a peer that sends one must not be taken for this library speaking of itself.
#pragma once

#include "core/status.h"

namespace sluice::engine {

// What a peer's reason is to us: its number, or kAborted where that says nothing here, since it is unknown,
// says that nothing happened, or is a local one.
[[nodiscard]] Errc from_peer(Errc code) noexcept;

// The number under which a peer is told of our reason; kAborted for one of this process alone. The words say
// the rest.
[[nodiscard]] Errc for_peer(Errc code) noexcept;

}  // namespace sluice::engine
