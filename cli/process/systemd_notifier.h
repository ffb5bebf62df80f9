// Notifies systemd of this process's state (sd_notify(3), Type=notify) and of its health (WATCHDOG_USEC).
// Without NOTIFY_SOCKET nothing is sent.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/units.h"

namespace sluice::cli {

// Class SystemdNotifier sends state lines to the socket that NOTIFY_SOCKET names.
class SystemdNotifier {
 public:
  // Reads the variables and removes them from the environment, so that child processes do not notify systemd
  // in this process's name. Construct before other threads start.
  SystemdNotifier();
  SystemdNotifier(const SystemdNotifier&) = delete;
  SystemdNotifier& operator=(const SystemdNotifier&) = delete;

  // Sends lines of sd_notify(3) such as "READY=1" or "STOPPING=1\nSTATUS=...". Blocks for at most 1 s and
  // ignores errors, because an unresponsive systemd must not stop the reducer. Thread-safe.
  void notify(const std::string& lines) const noexcept;

  // Returns the interval within which systemd expects WATCHDOG=1; 0: systemd does not watch this process.
  [[nodiscard]] Nanos watchdog_period() const noexcept { return watchdog_period_; }

 private:
  std::string address_;  // of the socket, in sun_path form; empty: none
  Nanos watchdog_period_ = 0;
};

// Class Watchdog sends WATCHDOG=1 from its own thread while the process makes progress. It calls `is_alive`
// four times per period. While `is_alive` returns false, throws or blocks, nothing is sent, and systemd kills
// the process after a whole period.
class Watchdog {
 public:
  // Starts no thread when systemd does not watch this process. `notifier` and the objects that `is_alive`
  // uses must outlive this object.
  Watchdog(const SystemdNotifier& notifier, std::function<bool()> is_alive);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();
  [[nodiscard]] bool check_alive() const noexcept;

  const SystemdNotifier& notifier_;
  const std::function<bool()> is_alive_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice::cli
