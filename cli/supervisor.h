// Words to the service manager that started this process (systemd, with Type=notify): sd_notify(3) over the
// socket that NOTIFY_SOCKET names, and the watchdog of WATCHDOG_USEC. Without those variables nothing is
// said.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "core/units.h"

namespace sluice::cli {

class Supervisor {
 public:
  // Takes the variables and removes them, so that no child speaks in this process's name. Before other
  // threads start.
  Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // "READY=1", "STOPPING=1\nSTATUS=...": lines of sd_notify(3). Waits a second at most and never fails: a
  // manager that does not listen must stop nobody's sums. Any thread.
  void tell(const std::string& lines) const noexcept;

  // Time within which the manager wants to hear WATCHDOG=1; 0: it does not.
  [[nodiscard]] Nanos watchdog_period() const noexcept { return watchdog_period_; }

 private:
  std::string address_;  // of the socket, as sun_path holds it; empty: nobody listens
  Nanos watchdog_period_ = 0;
};

// Beats from a thread of its own, as long as it lives: asks `turns` four times in the period, and says
// WATCHDOG=1 when it says yes. No, an exception, or no answer at all as long as `turns` blocks: the manager
// hears nothing, and after a whole period of that ends this process.
class Watchdog {
 public:
  // Does nothing where the manager has no watchdog. `manager` and what `turns` asks outlive this.
  Watchdog(const Supervisor& manager, std::function<bool()> turns);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();
  [[nodiscard]] bool is_well() const noexcept;

  const Supervisor& manager_;
  const std::function<bool()> turns_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;  // by mutex_
  std::thread thread_;
};

}  // namespace sluice::cli
