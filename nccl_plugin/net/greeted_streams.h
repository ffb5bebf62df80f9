#pragma once

#include <memory>
#include <vector>

#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

// The connected and greeted streams of a pair, by index, and the context they are to live in: what a
// handshake of either side ends with.
struct GreetedStreams {
  std::unique_ptr<transport::tcp::TcpContext> context;
  std::vector<transport::tcp::Socket> sockets;  // never empty
};

}  // namespace sluice::nccl::net
