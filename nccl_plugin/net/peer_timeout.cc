#include "nccl_plugin/net/peer_timeout.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

namespace sluice::nccl::net {

AckState read_ack_state(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.is_outstanding = info.tcpi_unacked > 0 || info.tcpi_probes > 0,
          .since_last = Nanos{info.tcpi_last_ack_recv} * kMillisecond};
}

Nanos PeerTimeout::update(const AckState& state, Nanos now) noexcept {
  const Nanos previous = std::exchange(last_update_, now);
  const bool acknowledged = previous != 0 && state.since_last < now - previous;
  if (!state.is_outstanding || acknowledged) {
    silent_since_ = 0;
  } else if (silent_since_ == 0) {
    silent_since_ = now;
  }
  return silent_since_ == 0 ? 0 : now - silent_since_;
}

}  // namespace sluice::nccl::net
