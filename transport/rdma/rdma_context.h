#pragma once

#include <memory>

#include "core/result.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::rdma {

// Creates a context for endpoints over queue pairs and over TCP, so that a thread that serves both kinds of
// peers sleeps in one wait() (docs/design/adr/0011). adopt() of a socket with a queue pair (pairing.h) makes
// an endpoint on the queue pair.
//
// Bytes that an endpoint sent before it closed are delivered while the context is polled. The destructor of
// the context waits for them for one second at most. In a build without verbs this is tcp::make_context().
[[nodiscard]] Result<std::unique_ptr<tcp::TcpContext>> make_context();

}  // namespace sluice::transport::rdma
