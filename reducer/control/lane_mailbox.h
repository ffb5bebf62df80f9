// Class LaneMailbox passes commands from the control loop to the lanes, and events back.
//
// Commands that do not fit into a lane's ring are queued and retried. Lanes signal events through an eventfd.
// Control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "reducer/control/asio.h"
#include "reducer/lane/lane_thread.h"

namespace sluice::reducer {

class LaneMailbox {
 public:
  // `io` and the lanes must outlive the mailbox. The lanes must not run yet.
  LaneMailbox(asio::io_context& io, std::vector<std::unique_ptr<LaneThread>>& lanes);

  // Calls `on_events`, which must not throw, whenever lanes have pushed events, until stop().
  void start(std::function<void()> on_events);
  // Lanes may still signal: the eventfd stays open until the mailbox is destroyed, since a lane could
  // otherwise write to another file with the same descriptor number.
  void stop() noexcept;

  void send(uint32_t lane, const LaneCommand& command);
  // Retries the queued commands.
  void flush();
  // Takes every event of every lane.
  template <typename F>
  void drain_events(F&& handle) {
    for (const auto& thread : lanes_) {
      for (LaneEvent event; thread->lane().poll_event(event);) handle(event);
    }
  }

 private:
  void wait_for_events();

  std::vector<std::unique_ptr<LaneThread>>& lanes_;
  std::vector<std::deque<LaneCommand>> queued_;  // per lane
  std::function<void()> on_events_;
  asio::posix::stream_descriptor event_fd_;
  uint64_t event_count_ = 0;
  bool stopped_ = false;
};

}  // namespace sluice::reducer
