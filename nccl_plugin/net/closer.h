// Where a sender's streams end in order while NCCL goes on. Closing them at once would lose data: a GRANT
// that lies unread in our socket makes the kernel answer close() with a reset, and a reset makes the peer's
// kernel forget what the peer has not read yet.
//
// One thread of the process, started when there is something to end and over when there is nothing left. It
// is detached and all it uses is never destroyed, so it may outlive main() and, as the library stays mapped
// (-z nodelete), dlclose().
#pragma once

#include <memory>

#include "nccl_plugin/net/stream_group.h"

namespace sluice::nccl::net {

// `group` is ending (begin_ending()). It is cut when it takes longer than kCloseDeadline, or when there is no
// thread to be had.
void end_in_background(std::unique_ptr<StreamGroup> group) noexcept;

}  // namespace sluice::nccl::net
