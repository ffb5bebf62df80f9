#pragma once

#include <cstddef>

#include "nccl_plugin/net/stream_group.h"

namespace sluice::nccl::net {

// Request is one isend or irecv. It is an entry of its comm's table, in use from the call until test()
// reports done.
class Request {
 public:
  StreamGroup* group = nullptr;  // set once, when the table is created
  bool in_use = false;
  bool done = false;
  size_t bytes = 0;  // sent or received, valid when done

  void release() noexcept {
    in_use = done = false;
    group->remove_request();
  }
};

}  // namespace sluice::nccl::net
