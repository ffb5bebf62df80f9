#include "transport/tcp/poller.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "transport/tcp/address.h"

namespace sluice::transport::tcp {
namespace {

// The epoll data of the eventfd; no socket has this owner.
constexpr uint64_t kWakeup = ~uint64_t{0};

epoll_event event_for(Handle owner, uint32_t events) noexcept {
  epoll_event e{};
  e.events = events;
  e.data.u64 = (uint64_t{owner.generation} << 32) | owner.index;
  return e;
}

}  // namespace

Result<std::unique_ptr<Poller>> Poller::make() {
  Socket epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return fail(Errc::kSystem, "cannot create an epoll set: " + error_text(errno));
  Socket event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return fail(Errc::kSystem, "cannot create an eventfd: " + error_text(errno));
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u64 = kWakeup;
  if (::epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, event.fd(), &e) != 0) {
    return fail(Errc::kSystem, "cannot add an eventfd to an epoll set: " + error_text(errno));
  }
  return std::unique_ptr<Poller>(new Poller(std::move(epoll), std::move(event)));
}

bool Poller::add(int fd, Handle owner, uint32_t events) noexcept {
  epoll_event e = event_for(owner, events);
  return ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &e) == 0;
}

void Poller::modify(int fd, Handle owner, uint32_t events) noexcept {
  epoll_event e = event_for(owner, events);
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &e);
}

size_t Poller::collect(std::span<epoll_event> out) noexcept {
  bool woken = false;  // woken_ stays set: only wait() consumes it
  return sleep(out, 0, woken);
}

size_t Poller::wait(std::span<epoll_event> out, Nanos timeout) noexcept {
  sleeping_.store(true);
  const bool already_woken = woken_.exchange(false);
  bool woken = false;
  const size_t n = sleep(out, already_woken ? 0 : timeout, woken);
  // The wake() that ended this sleep must not end the next one too. Acquires the writes made before wake().
  if (woken) woken_.exchange(false);
  sleeping_.store(false);
  return n;
}

void Poller::wake() noexcept {
  woken_.store(true);
  if (!sleeping_.load()) return;
  const uint64_t one = 1;
  // Fails only when 2^64 wakes are pending, and then the eventfd is readable anyway.
  [[maybe_unused]] const ssize_t n = ::write(event_.fd(), &one, sizeof one);
}

size_t Poller::sleep(std::span<epoll_event> out, Nanos timeout, bool& woken) noexcept {
  const int room = static_cast<int>(out.size());
  int n = -1;
  if (timeout > 0 && has_pwait2_) {
    const timespec t{.tv_sec = timeout / kSecond, .tv_nsec = timeout % kSecond};
    // A raw system call, because glibc's function is newer than the oldest glibc that loads the NCCL plugin.
    n = static_cast<int>(::syscall(SYS_epoll_pwait2, epoll_.fd(), out.data(), room, &t, nullptr, 0));
    // Linux before 5.11 lacks it and some sandboxes refuse it; epoll_wait has a resolution of 1 ms.
    if (n < 0 && (errno == ENOSYS || errno == EPERM)) has_pwait2_ = false;
  }
  if (timeout <= 0 || !has_pwait2_) {
    const auto ms = std::min<uint64_t>(
        div_ceil(static_cast<uint64_t>(std::max<Nanos>(timeout, 0)), kMillisecond), 1U << 30);
    n = ::epoll_wait(epoll_.fd(), out.data(), room, timeout < 0 ? -1 : static_cast<int>(ms));
  }
  size_t kept = 0;
  for (int i = 0; i < n; ++i) {
    if (out[i].data.u64 != kWakeup) {
      out[kept++] = out[i];
      continue;
    }
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_.fd(), &count, sizeof count);
    woken = true;
  }
  return kept;
}

}  // namespace sluice::transport::tcp
