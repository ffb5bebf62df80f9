#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

// ConnectedStreams is the result of a handshake of either side: the streams between a sender and a receiver,
// by index, with their queue pairs if they use RDMA, and the context for them.
struct ConnectedStreams {
  std::unique_ptr<transport::tcp::TcpContext> context;
  std::vector<transport::tcp::Socket> sockets;  // never empty
  std::string transport_text{};  // the transport of the streams, for the log; empty: only TCP is possible
};

}  // namespace sluice::nccl::net
