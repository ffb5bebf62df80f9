// What the kernel knows of a connection's way through the network.
#pragma once

#include <cstdint>

namespace sluice::transport::tcp {

// Counts that go up when packets of this connection are lost: sent again by us, or come here past a gap. 0
// when the kernel does not tell. A path that has been seen to reorder packets counts only the first.
[[nodiscard]] uint64_t lost_packets(int fd) noexcept;

}  // namespace sluice::transport::tcp
