#include "gpu_client/engine/control/control_poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace sluice::engine {

Result<void> ControlPoller::open() {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeKey}};
  if (epoll_ < 0 || wake_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    return fail(Errc::kSystem,
                std::string("cannot create epoll for control connections: ") + std::strerror(errno));
  }
  return {};
}

ControlPoller::~ControlPoller() {
  if (wake_ >= 0) ::close(wake_);
  if (epoll_ >= 0) ::close(epoll_);
}

void ControlPoller::watch(int fd, uint64_t key, bool writable, bool add) noexcept {
  epoll_event event{.events = EPOLLIN | (writable ? EPOLLOUT : 0u), .data = {.u64 = key}};
  ::epoll_ctl(epoll_, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void ControlPoller::unwatch(int fd) noexcept {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void ControlPoller::wake() noexcept {
  const uint64_t one = 1;
  static_cast<void>(!::write(wake_, &one, sizeof one));  // full: an earlier wake-up has not been consumed
}

void ControlPoller::consume_wake() noexcept {
  uint64_t count = 0;
  static_cast<void>(!::read(wake_, &count, sizeof count));
}

std::span<const epoll_event> ControlPoller::wait(Events& events, int timeout_ms) noexcept {
  const int n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), timeout_ms);
  return {events.data(), static_cast<size_t>(std::max(n, 0))};
}

}  // namespace sluice::engine
