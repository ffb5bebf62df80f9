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

class PairEventSubscription;

// DeviceEvents reads the asynchronous events of one opened RDMA device: a port went down, the device was
// removed, a queue pair failed. Without these events, a queue pair that only receives would never notice the
// failure. Each event marks the affected queue pairs as failed and wakes the registered contexts. Any thread
// may poll(); there is no thread for events, because a process that forks would lose it.
class DeviceEvents {
 public:
  DeviceEvents(const Verbs& verbs, ibv_context* context, std::string name);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;

  // Handles all pending events without blocking. Logs one line for each event that ends queue pairs.
  void poll() noexcept;
  // The descriptor that is readable while events are pending. It stays readable once the device was removed.
  [[nodiscard]] int fd() const noexcept { return context_->async_fd; }
  // True when the device was removed. A later device of the same name is a different device.
  [[nodiscard]] bool is_removed() const noexcept { return removed_.load(std::memory_order_relaxed); }
  // How often a port went down.
  [[nodiscard]] uint64_t port_losses() const noexcept { return port_losses_.load(std::memory_order_relaxed); }

  // Adds or removes a context to wake after an event that ends queue pairs; it must stay valid until removed.
  void add_context(Context& context);
  void remove_context(Context& context) noexcept;

 private:
  friend class PairEventSubscription;
  // Marks the matching queue pairs as failed; returns how many were not failed before.
  template <typename Predicate>
  size_t fail_pairs(Predicate matches) noexcept;
  // Return the line to log; empty: none.
  [[nodiscard]] std::string handle_event(const ibv_async_event& event);
  [[nodiscard]] std::string handle_removal();

  const Verbs& verbs_;
  ibv_context* const context_;
  const std::string name_;
  const ino_t sysfs_inode_;  // 0: the device has no sysfs entry
  std::atomic<bool> removed_ = false;
  std::atomic<uint64_t> port_losses_ = 0;
  std::mutex mutex_;
  std::vector<PairEventSubscription*> pairs_;
  std::vector<Context*> contexts_;
};

// PairEventSubscription reports whether an event of the device has ended a queue pair.
class PairEventSubscription {
 public:
  PairEventSubscription(DeviceEvents& events, uint8_t port);
  PairEventSubscription(const PairEventSubscription&) = delete;
  PairEventSubscription& operator=(const PairEventSubscription&) = delete;
  ~PairEventSubscription();

  // Sets the verbs objects that events of this queue pair refer to.
  void bind(const ibv_qp* pair, const ibv_cq* completions) noexcept;
  // True when the queue pair can no longer work. One relaxed load, so callers check it at every poll.
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

 private:
  friend class DeviceEvents;
  DeviceEvents& events_;
  const uint8_t port_;
  const ibv_qp* pair_ = nullptr;
  const ibv_cq* completions_ = nullptr;
  std::atomic<bool> failed_ = false;
};

}  // namespace sluice::transport::rdma
