#include "cli/supervisor.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/log.h"

namespace sluice::cli {
namespace {

std::string take(const char* name) {
  const char* const value = std::getenv(name);
  const std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

// 0: not a number.
uint64_t number_in(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

}  // namespace

Supervisor::Supervisor() : address_(take("NOTIFY_SOCKET")) {
  const uint64_t period_us = number_in(take("WATCHDOG_USEC"));
  const std::string watched = take("WATCHDOG_PID");
  if (address_.empty()) return;
  if ((address_[0] != '/' && address_[0] != '@') || address_.size() >= sizeof(sockaddr_un::sun_path)) {
    log::warn("NOTIFY_SOCKET=" + address_ +
              " is no address of a socket; the service manager is told nothing");
    address_.clear();
    return;
  }
  if (address_[0] == '@') address_[0] = '\0';  // the abstract namespace
  // A year is as good as never, and does not overflow.
  constexpr uint64_t kYear = uint64_t{365} * 24 * 3600 * 1'000'000;
  if (watched.empty() || number_in(watched) == static_cast<uint64_t>(getpid()))
    watchdog_period_ = static_cast<Nanos>(std::min(period_us, kYear)) * kMicrosecond;
}

void Supervisor::tell(const std::string& lines) const noexcept {
  if (address_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // READY=1 is worth a moment when the manager's queue is full.
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  // A path ends at its NUL, an abstract name with the length.
  const size_t size = offsetof(sockaddr_un, sun_path) + address_.size() + (address_[0] == '\0' ? 0 : 1);
  (void)sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(size));
  close(fd);
}

Watchdog::Watchdog(const Supervisor& manager, std::function<bool()> turns)
    : manager_(manager), turns_(std::move(turns)) {
  if (manager_.watchdog_period() > 0) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

// No memory for a moment is no reason to end every session, which an exception out of a thread would.
bool Watchdog::is_well() const noexcept {
  try {
    return turns_();
  } catch (...) {
    return false;
  }
}

void Watchdog::run() {
  // So that neither a late beat nor one that was left out ends a process that is well again.
  const auto period = std::chrono::nanoseconds(manager_.watchdog_period() / 4);
  bool said = false;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, period, [this] { return ending_; })) {
    lock.unlock();
    if (is_well()) {
      manager_.tell("WATCHDOG=1");
      said = false;
    } else if (!said) {
      log::error("a lane stands still, or the conductor; the service manager is not told that all is well");
      said = true;
    }
    lock.lock();
  }
}

}  // namespace sluice::cli
