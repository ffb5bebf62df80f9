// Notices that a peer's host is gone while bytes are on their way to it. The kernel would retransmit for
// about a quarter of an hour, and keepalive asks only where nothing is outstanding. TCP_USER_TIMEOUT would
// end a peer that is merely stopped, with its window full: its host still acknowledges probes, so here only a
// host that acknowledges nothing at all is counted as gone.
#pragma once

#include <cstdint>

#include "core/units.h"

namespace sluice::nccl::net {

// What the kernel knows of a connection.
struct Acknowledgement {
  bool outstanding = false;  // bytes, or a probe of a closed window, wait for one
  Nanos since_last = 0;      // since one came, of anything
};
// All false and 0 where the kernel does not tell.
[[nodiscard]] Acknowledgement acknowledgement(int fd) noexcept;

class Silence {
 public:
  // Look once in a while; how long the peer has been silent, counted from the second look on: the first one
  // may find old silence and new bytes.
  [[nodiscard]] Nanos look(const Acknowledgement& a, Nanos now) noexcept;

 private:
  Nanos last_look_ = 0;
  Nanos since_ = 0;  // 0: not silent
};

}  // namespace sluice::nccl::net
