// Sockets of streams, opened and connected without blocking.
#pragma once

#include <sys/socket.h>

#include <string>

#include "core/result.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::net {

// Begins to connect to `to` from `local_address` (numeric; when of another family, the route decides).
// kExhausted when there is no descriptor.
[[nodiscard]] Result<transport::tcp::Socket> begin_connect(const sockaddr_storage& to,
                                                           const std::string& local_address);

// kOk once connected, kWouldBlock before, kSystem with errno in `error`.
[[nodiscard]] Status connect_progress(int fd, int& error) noexcept;

}  // namespace sluice::nccl::net
