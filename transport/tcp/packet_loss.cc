#include "transport/tcp/packet_loss.h"

// The kernel's header, because the struct of the C library lacks tcpi_rcv_ooopack. The two headers cannot be
// included together, so this function has its own file.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace sluice::transport::tcp {

uint64_t lost_packets(int fd) noexcept {
  tcp_info info{};  // an older kernel fills in less
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  const uint64_t gaps = info.tcpi_reord_seen == 0 ? info.tcpi_rcv_ooopack : 0;
  // A packet that the peer reports as duplicate was retransmitted without a loss: its acknowledgement was
  // late, as on a busy host.
  const uint32_t spurious = std::min(info.tcpi_dsack_dups, info.tcpi_total_retrans);
  return info.tcpi_total_retrans - spurious + gaps;
}

}  // namespace sluice::transport::tcp
