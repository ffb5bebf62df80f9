#pragma once

#include <cstdint>

#include "core/units.h"

namespace sluice::nccl::net {

// The kernel's view of a connection.
struct AckState {
  bool is_outstanding = false;  // sent data, or a probe of a closed window, is not acknowledged
  Nanos since_last = 0;         // since the last acknowledgement
};
// Returns the default values when the kernel does not report the state.
[[nodiscard]] AckState read_ack_state(int fd) noexcept;

// PeerTimeout measures how long the peer's host has acknowledged nothing while data is outstanding. The
// kernel would retransmit for about a quarter of an hour, and keepalive works only when nothing is
// outstanding. TCP_USER_TIMEOUT is no alternative: it would end a connection whose process is stopped and
// whose window is full, although its host still acknowledges probes.
class PeerTimeout {
 public:
  // Call periodically. Returns the time without acknowledgements, 0 at the first call, which may find an old
  // acknowledgement and new data.
  [[nodiscard]] Nanos update(const AckState& state, Nanos now) noexcept;

 private:
  Nanos last_update_ = 0;
  Nanos silent_since_ = 0;  // 0: not silent
};

}  // namespace sluice::nccl::net
