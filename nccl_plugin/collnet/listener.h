#pragma once

#include <string>

#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/collnet/handle.h"
#include "transport/tcp/socket.h"

namespace sluice::nccl::collnet {

// Where the other nodes will call, until connect() takes the socket over.
class Listener {
 public:
  Contact contact;
  transport::tcp::Socket socket;
};

}  // namespace sluice::nccl::collnet
