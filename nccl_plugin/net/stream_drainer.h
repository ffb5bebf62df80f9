#pragma once

#include <memory>

#include "nccl_plugin/net/stream_group.h"

namespace sluice::nccl::net {

// Shuts down the streams of a sender in the background, so that NCCL does not wait; `group` is shutting down
// already (begin_shutdown()). Closing the sockets at once could lose data: if a GRANT is unread in a socket,
// the kernel answers close() with a reset, and the reset makes the peer's kernel drop data that the peer has
// not read.
//
// Streams that take longer than kCloseTimeout are reset, and also if no thread can be created. One thread
// serves the whole process; it exists only while groups drain. It is detached and uses only objects that are
// never destroyed, so it may outlive main() and, because the library stays mapped (-z nodelete), dlclose().
void drain_in_background(std::unique_ptr<StreamGroup> group) noexcept;

}  // namespace sluice::nccl::net
