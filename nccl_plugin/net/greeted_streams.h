#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/socket.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::nccl::net {

// The connected and greeted streams of a pair, by index, each with its queue pair where it has one, and the
// context they are to live in: what a handshake of either side ends with.
struct GreetedStreams {
  std::unique_ptr<transport::tcp::TcpContext> context;
  std::vector<transport::tcp::Socket> sockets;  // never empty
  std::string way{};  // what they go over, for people; empty where that is no question
};

}  // namespace sluice::nccl::net
