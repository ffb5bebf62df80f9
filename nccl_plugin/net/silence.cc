#include "nccl_plugin/net/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

namespace sluice::nccl::net {

Acknowledgement acknowledgement(int fd) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.outstanding = info.tcpi_unacked > 0 || info.tcpi_probes > 0,
          .since_last = Nanos{info.tcpi_last_ack_recv} * kMillisecond};
}

Nanos Silence::look(const Acknowledgement& a, Nanos now) noexcept {
  const Nanos before = std::exchange(last_look_, now);
  const bool heard = before != 0 && a.since_last < now - before;
  if (!a.outstanding || heard) {
    since_ = 0;
  } else if (since_ == 0) {
    since_ = now;
  }
  return since_ == 0 ? 0 : now - since_;
}

}  // namespace sluice::nccl::net
