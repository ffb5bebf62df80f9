// The kernel's header, because the struct of the C library lacks tcpi_rcv_ooopack. The two headers cannot be
// included together, so these functions have their own file.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

#include "transport/tcp/socket.h"

namespace sluice::transport::tcp {

namespace {

// An older kernel fills in less. Nothing where the call fails.
tcp_info info_of(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info : tcp_info{};
}

// A packet that the peer reports as duplicate was not lost; its acknowledgement was late (busy host).
uint32_t lost_of(const tcp_info& info) noexcept {
  return info.tcpi_total_retrans - std::min(info.tcpi_dsack_dups, info.tcpi_total_retrans);
}

}  // namespace

uint64_t Socket::lost_packets() const noexcept {
  const tcp_info info = info_of(fd_);
  return lost_of(info) + (info.tcpi_reord_seen == 0 ? info.tcpi_rcv_ooopack : 0);
}

PathStats Socket::path_stats() const noexcept {
  const tcp_info info = info_of(fd_);
  return {.packets = info.tcpi_data_segs_out,
          .lost_packets = lost_of(info),
          .acked_bytes = info.tcpi_bytes_acked,
          .has_unacked = info.tcpi_unacked != 0,
          .mtu = info.tcpi_pmtu,
          .round_trip = info.tcpi_min_rtt == ~0U ? 0 : Nanos{info.tcpi_min_rtt} * kMicrosecond};
}

Nanos Socket::network_limited_time() const noexcept {
  const tcp_info info = info_of(fd_);
  const uint64_t buffers = info.tcpi_rwnd_limited + info.tcpi_sndbuf_limited;  // both parts of the busy time
  return static_cast<Nanos>(info.tcpi_busy_time - std::min<uint64_t>(buffers, info.tcpi_busy_time)) *
         kMicrosecond;
}

}  // namespace sluice::transport::tcp
