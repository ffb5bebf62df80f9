#pragma once

#include <string>

#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/collnet/node_handle.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

// Listener owns the socket to which the other nodes connect, until connect() takes the socket.
class Listener {
 public:
  NodeHandle handle;
  transport::tcp::Socket socket;
  uint64_t communicator = 0;  // NCCL's id
};

}  // namespace sluice::nccl::collnet
