// Packet loss of TCP connections, as the kernel counts it.
#pragma once

#include <cstdint>

namespace sluice::transport::tcp {

// The number of lost packets of a connection: packets that this host retransmitted, and packets that arrived
// after a gap. 0 when the kernel does not report it. Gaps do not count where sent packets were seen to be
// reordered, because received packets may be reordered too.
[[nodiscard]] uint64_t lost_packets(int fd) noexcept;

}  // namespace sluice::transport::tcp
