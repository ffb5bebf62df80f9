// Class ControlPoller waits for events of control connections and for wake-ups from other threads. It owns an
// epoll descriptor and an eventfd.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace sluice::engine {

class ControlPoller {
 public:
  // The key of the event that wake() causes. Connections have other keys.
  static constexpr uint64_t kWakeKey = 0;
  using Events = std::array<epoll_event, 64>;

  ControlPoller() = default;
  ~ControlPoller();
  ControlPoller(const ControlPoller&) = delete;

  // Creates the descriptors. Returns kSystem when the system refuses.
  [[nodiscard]] Result<void> open();

  // Makes the events of a descriptor arrive with `key` in data.u64. `add` is false for a descriptor that is
  // registered already. A failure for lack of memory is ignored: the connection is still served by timer.
  void watch(int fd, uint64_t key, bool writable, bool add) noexcept;
  // To be called before the descriptor is closed: a forked child may hold a copy of it, which would keep the
  // registration alive.
  void unwatch(int fd) noexcept;

  // Makes wait() return. Any thread.
  void wake() noexcept;
  // Resets the event of wake().
  void consume_wake() noexcept;
  // Waits up to `timeout_ms`, or without limit when it is negative.
  [[nodiscard]] std::span<const epoll_event> wait(Events& events, int timeout_ms) noexcept;

 private:
  int epoll_ = -1;
  int wake_ = -1;  // eventfd
};

}  // namespace sluice::engine
