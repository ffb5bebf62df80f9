// What a device says by itself: that a port is down, that the device is gone, that a queue pair has failed. A
// queue pair that only receives would learn it from nobody else.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "transport/rdma/verbs.h"
#include "transport/transport.h"

namespace sluice::transport::rdma {

class PairEvents;

// Of one opened device. Whoever looks first takes an event, tells all queue pairs that it is about, and wakes
// the contexts that they may sleep in: no thread of its own, which a process that forks would lose, and no
// descriptor beside the device's. Any thread.
class DeviceEvents {
 public:
  DeviceEvents(const Verbs& calls, ibv_context* context, std::string name);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  // Takes what there is, without waiting. One line of log for each event that ends queue pairs.
  void look() noexcept;
  // Readable when there is something to look at; for ever, once the device is gone.
  [[nodiscard]] int fd() const noexcept { return context_->async_fd; }
  // Nothing comes or goes by it any more, and a device of the same name is another one.
  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }
  // How often a port went down.
  [[nodiscard]] uint64_t port_losses() const noexcept { return port_losses_.load(std::memory_order_relaxed); }

  // Woken after an event that ends queue pairs. `context` outlives it.
  void wakes(Context& context);
  void forget(Context& context) noexcept;

 private:
  friend class PairEvents;
  // Which are over, with it.
  template <typename Concerned>
  size_t end(Concerned concerned) noexcept;
  [[nodiscard]] std::string take(const ibv_async_event& event);
  [[nodiscard]] std::string take_removal();
  [[nodiscard]] bool kernel_has_it() const noexcept;

  const Verbs& calls_;
  ibv_context* const context_;
  const std::string name_;
  const ino_t entry_;  // of sysfs; 0: it shows none
  std::atomic<bool> gone_ = false;
  std::atomic<uint64_t> port_losses_ = 0;
  std::mutex mutex_;
  std::vector<PairEvents*> pairs_;
  std::vector<Context*> contexts_;
};

// A queue pair's part of it.
class PairEvents {
 public:
  PairEvents(DeviceEvents& events, uint8_t port);
  PairEvents(const PairEvents&) = delete;
  PairEvents& operator=(const PairEvents&) = delete;
  ~PairEvents();

  // What the events of one queue pair, or of its completion queue, name.
  void name(const ibv_qp* pair, const ibv_cq* completions) noexcept;
  // Nothing comes any more. One plain load: looked at each time that completions are.
  [[nodiscard]] bool fatal() const noexcept { return fatal_.load(std::memory_order_relaxed); }

 private:
  friend class DeviceEvents;
  DeviceEvents& events_;
  const uint8_t port_;
  const ibv_qp* pair_ = nullptr;
  const ibv_cq* completions_ = nullptr;
  std::atomic<bool> fatal_ = false;
};

}  // namespace sluice::transport::rdma
