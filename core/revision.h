// The revision of the source tree that this program or library was built from.
#pragma once

namespace sluice {

// Returns `git describe --always --dirty`, or "unknown" when built from an archive without a recorded
// revision.
[[nodiscard]] const char* revision() noexcept;

}  // namespace sluice
