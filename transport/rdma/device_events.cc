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

// An entry that was removed and came again has another number.
ino_t entry_number(const ibv_context* context) noexcept {
  struct stat entry {};
  return ::stat(context->device->dev_path, &entry) == 0 ? entry.st_ino : 0;
}

// Of those that end one queue pair; empty: another event.
std::string_view failure_of_pair(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL: return "QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR: return "QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR: return "QP_ACCESS_ERR";
    case IBV_EVENT_QP_LAST_WQE_REACHED: return "QP_LAST_WQE_REACHED";
    case IBV_EVENT_PATH_MIG_ERR: return "PATH_MIG_ERR";
    default: return {};
  }
}

std::string pairs_lost(size_t count) {
  return ": " + std::to_string(count) + (count == 1 ? " queue pair is lost" : " queue pairs are lost");
}

}  // namespace

DeviceEvents::DeviceEvents(const Verbs& calls, ibv_context* context, std::string name)
    : calls_(calls), context_(context), name_(std::move(name)), entry_(entry_number(context)) {}

bool DeviceEvents::kernel_has_it() const noexcept {
  return entry_ == 0 || entry_number(context_) == entry_;
}

template <typename Concerned>
size_t DeviceEvents::end(Concerned concerned) noexcept {
  const std::lock_guard lock(mutex_);
  size_t count = 0;
  for (PairEvents* const p : pairs_) {
    if (concerned(*p) && !p->fatal_.exchange(true, std::memory_order_relaxed)) ++count;
  }
  if (count > 0) {
    for (Context* const c : contexts_) c->wake();
  }
  return count;
}

// What is to be said of it; empty: nothing.
std::string DeviceEvents::take(const ibv_async_event& event) {
  const std::string device = "RDMA device " + name_;
  const auto type = event.event_type;
  if (type == IBV_EVENT_DEVICE_FATAL) return take_removal();
  if (type == IBV_EVENT_PORT_ERR) {
    const auto port = event.element.port_num;
    port_losses_.fetch_add(1, std::memory_order_relaxed);
    const size_t lost = end([port](const PairEvents& p) { return p.port_ == port; });
    return device + " port " + std::to_string(port) + " went down" + pairs_lost(lost);
  }
  if (type == IBV_EVENT_CQ_ERR) {
    end([&event](const PairEvents& p) { return p.completions_ == event.element.cq; });
    return device + ": a completion queue failed: CQ_ERR";
  }
  if (const auto failure = failure_of_pair(type); !failure.empty()) {
    end([&event](const PairEvents& p) { return p.pair_ == event.element.qp; });
    return device + ": a queue pair failed: " + std::string(failure);
  }
  return {};
}

std::string DeviceEvents::take_removal() {
  if (gone_.exchange(true, std::memory_order_relaxed)) return {};
  return "RDMA device " + name_ + " is gone" + pairs_lost(end([](const PairEvents&) { return true; }));
}

void DeviceEvents::look() noexcept {
  const auto say = [](const std::string& line) {
    if (!line.empty()) log::warn(line);
  };
  try {
    while (!gone()) {
      ibv_async_event event{};
      if (calls_.get_async_event(context_, &event) != 0) {
        // A driver that takes its device away at once leaves nothing behind the descriptor; one that waits
        // for those who have it open, as those of software do, says nothing to them.
        const bool none = errno == EAGAIN || errno == EINTR;
        if (!none || !kernel_has_it()) say(take_removal());
        return;
      }
      // Whoever unmakes what it names waits for the acknowledgement.
      struct Acknowledged {
        const Verbs& calls;
        ibv_async_event& event;
        ~Acknowledged() { calls.ack_async_event(&event); }
      } const acknowledged{calls_, event};
      say(take(event));
    }
  } catch (const std::exception&) {
    log::warn("an RDMA device's event, and no memory to say which");
  }
}

void DeviceEvents::wakes(Context& context) {
  const std::lock_guard lock(mutex_);
  contexts_.push_back(&context);
}

void DeviceEvents::forget(Context& context) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(contexts_, &context);
}

PairEvents::PairEvents(DeviceEvents& events, uint8_t port) : events_(events), port_(port) {
  const std::lock_guard lock(events_.mutex_);
  events_.pairs_.push_back(this);
  // It went while this one's way was chosen.
  if (events_.gone()) fatal_.store(true, std::memory_order_relaxed);
}

PairEvents::~PairEvents() {
  const std::lock_guard lock(events_.mutex_);
  std::erase(events_.pairs_, this);
}

void PairEvents::name(const ibv_qp* pair, const ibv_cq* completions) noexcept {
  const std::lock_guard lock(events_.mutex_);
  pair_ = pair;
  completions_ = completions;
}

}  // namespace sluice::transport::rdma
