#include "transport/rdma/device_events.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <string_view>
#include <utility>

#include "core/log.h"

namespace sluice::transport::rdma {
namespace {

// A sysfs entry that was removed and created again has another inode.
ino_t sysfs_inode(const ibv_context* context) noexcept {
  struct stat entry {};
  return ::stat(context->device->dev_path, &entry) == 0 ? entry.st_ino : 0;
}

// The name of an event that ends one queue pair; empty for other events.
std::string_view pair_failure_name(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL: return "QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR: return "QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR: return "QP_ACCESS_ERR";
    case IBV_EVENT_QP_LAST_WQE_REACHED: return "QP_LAST_WQE_REACHED";
    case IBV_EVENT_PATH_MIG_ERR: return "PATH_MIG_ERR";
    default: return {};
  }
}

std::string lost_pairs_text(size_t count) {
  return ": " + std::to_string(count) + (count == 1 ? " queue pair lost" : " queue pairs lost");
}

}  // namespace

DeviceEvents::DeviceEvents(const Verbs& verbs, ibv_context* context, std::string name)
    : verbs_(verbs), context_(context), name_(std::move(name)), sysfs_inode_(sysfs_inode(context)) {}

template <typename Predicate>
size_t DeviceEvents::fail_pairs(Predicate matches) noexcept {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (PairEventSubscription* const p : pairs_) {
    if (matches(*p) && !p->failed_.exchange(true, std::memory_order_relaxed)) ++count;
  }
  if (count > 0) {
    for (Context* const c : contexts_) c->wake();
  }
  return count;
}

std::string DeviceEvents::handle_event(const ibv_async_event& event) {
  const std::string device = "RDMA device " + name_;
  const auto type = event.event_type;
  if (type == IBV_EVENT_DEVICE_FATAL) return handle_removal();
  if (type == IBV_EVENT_PORT_ERR) {
    const auto port = event.element.port_num;
    port_losses_.fetch_add(1, std::memory_order_relaxed);
    const size_t lost = fail_pairs([port](const PairEventSubscription& p) { return p.port_ == port; });
    return device + " port " + std::to_string(port) + " went down" + lost_pairs_text(lost);
  }
  if (type == IBV_EVENT_CQ_ERR) {
    fail_pairs([&event](const PairEventSubscription& p) { return p.completions_ == event.element.cq; });
    return device + ": completion queue failed: CQ_ERR";
  }
  if (const auto failure = pair_failure_name(type); !failure.empty()) {
    fail_pairs([&event](const PairEventSubscription& p) { return p.pair_ == event.element.qp; });
    return device + ": queue pair failed: " + std::string(failure);
  }
  return {};
}

std::string DeviceEvents::handle_removal() {
  if (removed_.exchange(true, std::memory_order_relaxed)) return {};
  const size_t lost = fail_pairs([](const PairEventSubscription&) { return true; });
  return "RDMA device " + name_ + " was removed" + lost_pairs_text(lost);
}

void DeviceEvents::poll() noexcept {
  const auto warn_unless_empty = [](const std::string& line) {
    if (!line.empty()) log::warn(line);
  };
  try {
    while (!is_removed()) {
      ibv_async_event event{};
      if (verbs_.get_async_event(context_, &event) != 0) {
        // A hardware driver removes its device at once, and reading events fails. A software driver waits
        // until all processes have closed the device and reports nothing, so only sysfs shows the removal.
        const bool none = errno == EAGAIN || errno == EINTR;
        const bool in_sysfs = sysfs_inode_ == 0 || sysfs_inode(context_) == sysfs_inode_;
        if (!none || !in_sysfs) warn_unless_empty(handle_removal());
        return;
      }
      // ibv_destroy_qp and ibv_destroy_cq block until the event is acknowledged.
      struct Acknowledgement {
        const Verbs& verbs;
        ibv_async_event& event;
        ~Acknowledgement() { verbs.ack_async_event(&event); }
      } const acknowledgement{verbs_, event};
      warn_unless_empty(handle_event(event));
    }
  } catch (const std::exception&) {
    log::warn("RDMA device event handled, but out of memory for its description");
  }
}

void DeviceEvents::add_context(Context& context) {
  const std::lock_guard lock(mutex_);
  contexts_.push_back(&context);
}

void DeviceEvents::remove_context(Context& context) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(contexts_, &context);
}

PairEventSubscription::PairEventSubscription(DeviceEvents& events, uint8_t port)
    : events_(events), port_(port) {
  const std::lock_guard lock(events_.mutex_);
  events_.pairs_.push_back(this);
  // The device may have been removed after the caller chose it.
  if (events_.is_removed()) failed_.store(true, std::memory_order_relaxed);
}

PairEventSubscription::~PairEventSubscription() {
  const std::lock_guard lock(events_.mutex_);
  std::erase(events_.pairs_, this);
}

void PairEventSubscription::bind(const ibv_qp* pair, const ibv_cq* completions) noexcept {
  const std::lock_guard lock(events_.mutex_);
  pair_ = pair;
  completions_ = completions;
}

}  // namespace sluice::transport::rdma
