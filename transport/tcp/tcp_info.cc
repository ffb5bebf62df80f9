// The kernel's header, because the struct of the C library lacks tcpi_rcv_ooopack. The two headers cannot be
// included together, so these functions have their own file.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/tcp/socket.h"

namespace sluice::transport::tcp {

uint64_t Socket::lost_packets() const noexcept {
  tcp_info info{};  // an older kernel fills in less
  socklen_t size = sizeof info;
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  const uint64_t gaps = info.tcpi_reord_seen == 0 ? info.tcpi_rcv_ooopack : 0;
  // A packet that the peer reports as duplicate was not lost; its acknowledgement was late (busy host).
  const uint32_t spurious = std::min(info.tcpi_dsack_dups, info.tcpi_total_retrans);
  return info.tcpi_total_retrans - spurious + gaps;
}

Nanos Socket::network_limited_time() const noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  const uint64_t buffers = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;  // both parts of the busy time
  return static_cast<Nanos>(info.tcpi_busy_time - std::min<uint64_t>(buffers, info.tcpi_busy_time)) *
         kMicrosecond;
}

}  // namespace sluice::transport::tcp
