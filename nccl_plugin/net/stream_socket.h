// Non-blocking connects for the sockets of streams.
#pragma once

#include <sys/socket.h>

#include <string>

#include "core/result.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::net {

// Starts to connect to `to` from `local_address` (numeric; ignored if it is of another family). kExhausted
// when the process has no free descriptor.
[[nodiscard]] Result<transport::tcp::Socket> start_connect(const sockaddr_storage& to,
                                                           const std::string& local_address);

// Returns kOk when connected, kWouldBlock before that, or kSystem with an errno value in `error`.
[[nodiscard]] Status poll_connect(int fd, int& error) noexcept;

}  // namespace sluice::nccl::net
