// One isend or irecv: a place in the table of its comm, from the call until test() has said done.
#pragma once

#include <cstddef>

#include "nccl_plugin/net/stream_group.h"

namespace sluice::nccl::net {

class Request {
 public:
  StreamGroup* group = nullptr;  // set once, when the table is made
  bool taken = false;
  bool done = false;
  size_t bytes = 0;  // sent or received, once done

  void release() noexcept {
    taken = done = false;
    group->request_over();
  }
};

}  // namespace sluice::nccl::net
