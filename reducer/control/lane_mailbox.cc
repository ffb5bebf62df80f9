#include "reducer/control/lane_mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace sluice::reducer {

LaneMailbox::LaneMailbox(asio::io_context& io, std::vector<std::unique_ptr<LaneThread>>& lanes)
    : lanes_(lanes), queued_(lanes.size()), event_fd_(io) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  event_fd_.assign(fd);
  for (const auto& lane : lanes_) {
    lane->lane().set_event_notifier([fd] {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);  // EAGAIN: already signaled
    });
  }
}

void LaneMailbox::start(std::function<void()> on_events) {
  on_events_ = std::move(on_events);
  wait_for_events();
}

void LaneMailbox::stop() noexcept {
  stopped_ = true;
  boost::system::error_code ignored;
  event_fd_.cancel(ignored);
}

void LaneMailbox::wait_for_events() {
  event_fd_.async_read_some(asio::buffer(&event_count_, sizeof event_count_),
                            [this](const boost::system::error_code& error, size_t) {
                              if (error || stopped_) return;
                              on_events_();
                              if (!stopped_) wait_for_events();  // on_events_ may stop it
                            });
}

void LaneMailbox::send(uint32_t lane, const LaneCommand& command) {
  const size_t index = lane % lanes_.size();
  auto& queued = queued_[index];
  if (!queued.empty() || !lanes_[index]->lane().command(command)) queued.push_back(command);
}

void LaneMailbox::flush() {
  for (size_t i = 0; i < queued_.size(); ++i) {
    auto& queued = queued_[i];
    while (!queued.empty() && lanes_[i]->lane().command(queued.front())) queued.pop_front();
  }
}

}  // namespace sluice::reducer
