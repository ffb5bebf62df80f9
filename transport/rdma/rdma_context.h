// Frames over queue pairs, beside frames over TCP: one context has both, so a thread that serves workers of
// both kinds sleeps once. docs/adr/0011.
#pragma once

#include <memory>

#include "core/result.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::rdma {

// adopt() of a socket that has a queue pair (pairing.h) makes an endpoint over that. What such an endpoint
// has sent when it closes arrives while the context is polled; a context that ends waits for that, a second
// at most. In a build without verbs: one of TCP.
[[nodiscard]] Result<std::unique_ptr<tcp::TcpContext>> make_context();

}  // namespace sluice::transport::rdma
