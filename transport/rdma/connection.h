// A queue pair and the TCP connection over which its ends found each other. The TCP connection stays: it is
// how a peer that ends, or is killed, is noticed at once.
#pragma once

#include <memory>

#include "core/result.h"
#include "transport/rdma/queue_pair.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::rdma {

struct Connection {
  tcp::Socket lifeline;
  std::unique_ptr<QueuePair> pair;
};

// Both ends call it at the same point of what they say over `socket`, from which nothing was read ahead. Each
// says the address of its queue pair (kPairAddressBytes), joins with the other's, and says one byte when it
// can receive. kUnsupported: there is no device with our end's address, or the connection has TLS. kTimeout,
// kShutdown, kClosed, kReset of the socket; kBad... where the peer's word is none. The socket is closed with
// an error.
[[nodiscard]] Result<Connection> join(tcp::Socket socket, const tcp::Until& until);

}  // namespace sluice::transport::rdma
