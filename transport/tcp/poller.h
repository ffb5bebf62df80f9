#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "core/ids.h"
#include "core/result.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::transport::tcp {

// Poller is an epoll set with an eventfd that ends its sleep. One thread calls collect() and wait(); any
// thread may call the other functions.
class Poller {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Poller>> make();

  [[nodiscard]] bool add(int fd, Handle owner, uint32_t events) noexcept;
  void modify(int fd, Handle owner, uint32_t events) noexcept;
  void remove(int fd) noexcept { ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr); }

  // Returns the number of events that are ready now.
  [[nodiscard]] size_t collect(std::span<epoll_event> out) noexcept;
  // The same, after sleeping until an event, wake() or `timeout` (< 0: no limit).
  [[nodiscard]] size_t wait(std::span<epoll_event> out, Nanos timeout) noexcept;
  // Any thread. Makes a system call only while the owner sleeps.
  void wake() noexcept;

  [[nodiscard]] static Handle owner(const epoll_event& e) noexcept {
    return {static_cast<uint32_t>(e.data.u64), static_cast<uint32_t>(e.data.u64 >> 32)};
  }

 private:
  Poller(Socket epoll, Socket event) noexcept : epoll_(std::move(epoll)), event_(std::move(event)) {}
  [[nodiscard]] size_t sleep(std::span<epoll_event> out, Nanos timeout, bool& woken) noexcept;

  Socket epoll_;
  Socket event_;
  bool has_pwait2_ = true;
  // wake() stores woken_, then reads sleeping_. wait() stores sleeping_, then reads woken_. Both are
  // sequentially consistent, so at least one of them sees the other's store, and no wake() is lost.
  std::atomic<bool> woken_{false};
  std::atomic<bool> sleeping_{false};
};

}  // namespace sluice::transport::tcp
