// Class HeartbeatListener receives the events that HeartbeatMonitor sees on a session's control connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/ids.h"
#include "core/status.h"
#include "wire/messages.h"

namespace sluice::engine {

// The ranks that the session's oldest unfinished chunk waits for, as reported by the reducers.
struct WaitingStatus {
  uint32_t missing_ranks = 0;
  uint32_t first_rank = wire::kNoRank;
  uint32_t waited_ms = 0;
};

// Calls come from the monitor's thread with its lock held, except on_progress_due(). A listener must not call
// the monitor from within them.
class HeartbeatListener {
 public:
  // Once, after the other reducers have been sent ABORT. `rank`: at fault, or wire::kNoRank.
  virtual void on_session_lost(Errc code, std::string text, Rank rank) noexcept = 0;
  virtual void on_waiting(const WaitingStatus& waiting) noexcept = 0;
  // After leave(), once every reducer has acknowledged or is lost; in a fault-tolerant session, once every
  // reducer has acknowledged or was dropped. The call may come from within leave() and drop().
  virtual void on_left() noexcept = 0;
  // The rank's first chunk without a result, to be reported to the reducers.
  [[nodiscard]] virtual uint64_t first_unfinished() const noexcept = 0;
  // The network loses packets of a reducer's connections, or does not carry what is sent on them. At most
  // once for each stall, and rarely for losses.
  virtual void on_path_warning(const std::string&) noexcept {}
  // After every turn of the monitor, at least once per heartbeat interval, without the lock, so the monitor
  // may be called, except remove(). A session without a thread makes progress here while its caller is busy.
  // Otherwise a frame that the session has started to send could exceed the reducer's frame deadline.
  virtual void on_progress_due() noexcept {}

  // The following calls occur in fault-tolerant sessions only. `peer` is the index in add(), or the result of
  // add_joining_peer().

  // Once per connection, which is closed: kClosed, kReset, kTimeout for silence, or the error of a malformed
  // frame. replace_connection() or drop() must follow.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): implementations store the text
  virtual void on_control_lost(size_t, Errc, std::string) noexcept {}
  virtual void on_view_query(size_t, const wire::ViewQuery&) noexcept {}
  virtual void on_rate_changes(size_t, const wire::RateChanges&) noexcept {}
  virtual void on_view_commit(size_t, const wire::ViewCommit&) noexcept {}
  virtual void on_drain_notice(size_t, const wire::DrainNotice&) noexcept {}

 protected:
  ~HeartbeatListener() = default;
};

}  // namespace sluice::engine
