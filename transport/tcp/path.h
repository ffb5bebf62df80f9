// What the kernel knows of a connection's way through the network.
#pragma once

#include <cstdint>

namespace sluice::transport::tcp {

// Counts that go up when packets of this connection are lost: sent again by us, or come here past a gap. 0
// when the kernel does not tell. Where what we send has been seen to arrive in another order, so may what
// comes, and gaps do not count.
[[nodiscard]] uint64_t lost_packets(int fd) noexcept;

}  // namespace sluice::transport::tcp
