#pragma once

#include <memory>

#include "core/result.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::memory {

// Creates a context for endpoints on pipes within this process, over queue pairs and over TCP: it adds the
// first kind to rdma::make_context(). adopt() of a socket with a PipeEnd (pipe.h) makes an endpoint on the
// pipe and closes the socket. The peer's context may be any other one, or the same.
[[nodiscard]] Result<std::unique_ptr<tcp::TcpContext>> make_context();

}  // namespace sluice::transport::memory
