#include "transport/rdma/device.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "transport/rdma/pairing.h"
#include "transport/tcp/address.h"

namespace sluice::transport::rdma {
namespace {

// The object behind keep_open().
struct DeviceHold {
  std::shared_ptr<const Device> device;  // guarded by the lock of DeviceRegistry
};

// DeviceRegistry knows the open devices of the process and the holds on them.
class DeviceRegistry {
 public:
  using ByName = std::map<std::string, std::weak_ptr<const Device>>;
  static DeviceRegistry& instance() {
    static auto& registry = *new DeviceRegistry;  // never destroyed: static objects may hold devices
    return registry;
  }
  // Call by_name() and holds() with the lock.
  ByName& by_name() {
    clear_after_fork();
    return by_name_;
  }
  std::vector<std::weak_ptr<DeviceHold>>& holds() {
    clear_after_fork();
    return holds_;
  }
  std::mutex mutex;

 private:
  // A forked child cannot use the devices that its parent opened.
  void clear_after_fork() {
    if (owner_ == ::getpid()) return;
    by_name_.clear();
    holds_.clear();
    owner_ = ::getpid();
  }
  pid_t owner_ = ::getpid();
  ByName by_name_;
  std::vector<std::weak_ptr<DeviceHold>> holds_;
};

}  // namespace

Result<std::shared_ptr<const Device>> Device::open(const std::string& name) {
  DeviceRegistry& registry = DeviceRegistry::instance();
  const std::lock_guard lock(registry.mutex);
  std::weak_ptr<const Device>& known = registry.by_name()[name];
  if (auto device = known.lock(); device && !device->events().is_removed()) return device;
  const auto v = load_verbs();
  if (!v) return tl::unexpected(v.error());
  const DeviceList list(**v);
  for (int i = 0; i < list.count; ++i) {
    if (name != (*v)->get_device_name(list.devices[i])) continue;
    errno = 0;
    ibv_context* const context = (*v)->open_device(list.devices[i]);
    if (context == nullptr)
      return fail(Errc::kSystem, "cannot open RDMA device " + name + ": " + tcp::error_text(errno));
    auto device = std::make_shared<const Device>(**v, name, context);
    const int flags = ::fcntl(context->async_fd, F_GETFL);
    if (flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0)
      return fail(Errc::kSystem, "cannot make the event descriptor of RDMA device " + name +
                                     " non-blocking: " + tcp::error_text(errno));
    known = device;
    return device;
  }
  return fail(Errc::kUnsupported, "RDMA device " + name + " was removed");
}

std::vector<std::shared_ptr<const Device>> open_devices() {
  DeviceRegistry& registry = DeviceRegistry::instance();
  const std::lock_guard lock(registry.mutex);
  std::vector<std::shared_ptr<const Device>> out;
  for (const auto& [name, weak] : registry.by_name()) {
    if (auto device = weak.lock()) out.push_back(std::move(device));
  }
  return out;
}

std::shared_ptr<const void> keep_open(std::shared_ptr<const Device> device) {
  auto hold = std::make_shared<DeviceHold>();
  hold->device = std::move(device);
  DeviceRegistry& registry = DeviceRegistry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.holds().push_back(hold);
  return hold;
}

void poll_device_events() {
  DeviceRegistry& registry = DeviceRegistry::instance();
  for (const auto& device : open_devices()) device->events().poll();
  std::vector<std::shared_ptr<const Device>> removed;  // declared before the lock: closed after its release
  const std::lock_guard lock(registry.mutex);
  std::erase_if(registry.holds(), [&removed](const std::weak_ptr<DeviceHold>& weak) {
    const auto hold = weak.lock();
    if (hold && hold->device->events().is_removed()) removed.push_back(std::move(hold->device));
    return !hold || !hold->device;
  });
}

std::vector<DeviceReport> device_reports() {
  poll_device_events();
  std::vector<DeviceReport> out;
  for (const auto& device : open_devices()) {
    if (device->events().is_removed()) continue;
    DeviceReport& report = out.emplace_back();
    report.device = device->name();
    report.port_losses = device->events().port_losses();
    device->counters().fill(report);
  }
  return out;
}

}  // namespace sluice::transport::rdma
