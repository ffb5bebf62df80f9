#include "cli/process/systemd_notifier.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "core/log.h"
#include "core/parse_number.h"

namespace sluice::cli {
namespace {

std::string take_variable(const char* name) {
  const char* const value = std::getenv(name);
  const std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

}  // namespace

SystemdNotifier::SystemdNotifier() : address_(take_variable("NOTIFY_SOCKET")) {
  const uint64_t period_us = parse_number<uint64_t>(take_variable("WATCHDOG_USEC")).value_or(0);
  const std::string watched_pid = take_variable("WATCHDOG_PID");
  if (address_.empty()) return;
  if ((address_[0] != '/' && address_[0] != '@') || address_.size() >= sizeof(sockaddr_un::sun_path)) {
    log::warn("NOTIFY_SOCKET=" + address_ + " is not a socket address; systemd is not notified");
    address_.clear();
    return;
  }
  if (address_[0] == '@') address_[0] = '\0';  // the abstract namespace
  // Limited to a year, which cannot overflow.
  constexpr uint64_t kYear = uint64_t{365} * 24 * 3600 * 1'000'000;
  if (watched_pid.empty() || parse_number<pid_t>(watched_pid) == getpid())
    watchdog_period_ = static_cast<Nanos>(std::min(period_us, kYear)) * kMicrosecond;
}

void SystemdNotifier::notify(const std::string& lines) const noexcept {
  if (address_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(), address_.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // Waits when systemd's queue is full, so that READY=1 is not lost.
  const timeval timeout{.tv_sec = 1, .tv_usec = 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  // The length includes the terminating NUL of a path, but an abstract name has none.
  const size_t size = offsetof(sockaddr_un, sun_path) + address_.size() + (address_[0] == '\0' ? 0 : 1);
  (void)sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(size));
  close(fd);
}

Watchdog::Watchdog(const SystemdNotifier& notifier, std::function<bool()> is_alive)
    : notifier_(notifier), is_alive_(std::move(is_alive)) {
  if (notifier_.watchdog_period() > 0) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

// An exception that leaves the thread would end the process and with it all sessions, for example when memory
// is short for a moment.
bool Watchdog::check_alive() const noexcept {
  try {
    return is_alive_();
  } catch (...) {
    return false;
  }
}

void Watchdog::run() {
  // Four times per period, so that a late or failed check does not end a process that recovers.
  const auto interval = std::chrono::nanoseconds(notifier_.watchdog_period() / 4);
  bool reported = false;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopping_; })) {
    lock.unlock();
    if (check_alive()) {
      notifier_.notify("WATCHDOG=1");
      reported = false;
    } else if (!reported) {
      log::error("watchdog: a lane or the control loop makes no progress; not sending WATCHDOG=1 to systemd");
      reported = true;
    }
    lock.lock();
  }
}

}  // namespace sluice::cli
