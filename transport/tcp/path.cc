#include "transport/tcp/path.h"

// The kernel's own header: the C library's struct ends before tcpi_rcv_ooopack. The two can't be included
// together, hence a file of its own.
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
  // What the peer says it had already was sent again in vain: an acknowledgement came late, as on a busy
  // host.
  const uint32_t in_vain = std::min(info.tcpi_dsack_dups, info.tcpi_total_retrans);
  return info.tcpi_total_retrans - in_vain + gaps;
}

}  // namespace sluice::transport::tcp
