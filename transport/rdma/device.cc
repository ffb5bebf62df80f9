#include "transport/rdma/device.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "transport/tcp/address.h"

namespace sluice::transport::rdma {
namespace {

constexpr size_t kMostGids = 256;

struct DeviceList {
  explicit DeviceList(const Verbs& v) : calls(v), devices(v.get_device_list(&count)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) calls.free_device_list(devices);
  }
  const Verbs& calls;
  int count = 0;
  ibv_device** devices;
};

bool is_mapped_ipv4(const ibv_gid& gid) {
  static constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix.data(), kPrefix.size()) == 0;
}

std::string address_of(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = is_mapped_ipv4(gid);
  ::inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid.raw + 12 : gid.raw, text.data(), text.size());
  return text.data();
}

// As a gid has it: an IPv4 address mapped.
bool gid_of(const sockaddr_storage& address, ibv_gid& gid) {
  std::memset(&gid, 0, sizeof gid);
  if (address.ss_family == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return true;
  }
  if (address.ss_family != AF_INET6) return false;
  std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  return true;
}

// Of an end of a connection, which `name` tells.
template <typename Name>
Result<ibv_gid> gid_by(Name name, int connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ibv_gid gid;
  if (name(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0 || !gid_of(address, gid))
    return fail(Errc::kReset, "a connection that has no addresses any more");
  return gid;
}

bool query_port(const Verbs& v, ibv_context* context, uint8_t port, ibv_port_attr& out) {
  // The declaration is of the oldest layout, which is the beginning of the newest.
  return v.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out)) == 0;
}

void add_paths(const std::shared_ptr<const Device>& device, const RailChoice& choice,
               std::vector<Path>& out) {
  const Verbs& v = device->calls();
  std::vector<ibv_gid_entry> entries(kMostGids);
  const ssize_t count =
      v.query_gid_table(device->context(), entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    const auto port = static_cast<uint8_t>(entry.port_num);
    ibv_port_attr attributes{};
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !query_port(v, device->context(), port, attributes))
      continue;
    if (attributes.state != IBV_PORT_ACTIVE) continue;
    if (choice.allows && !choice.allows(device->name(), port)) continue;
    if (choice.gid_index >= 0 && entry.gid_index != static_cast<uint32_t>(choice.gid_index)) continue;
    out.push_back({.device = device,
                   .port = port,
                   .gid_index = static_cast<uint8_t>(entry.gid_index),
                   .mtu = attributes.active_mtu,
                   .gid = entry.gid,
                   .address = address_of(entry.gid)});
  }
}

const Path* find_path(const std::vector<Path>& all, const ibv_gid& gid) {
  const auto same = [&](const Path& p) { return std::memcmp(p.gid.raw, gid.raw, sizeof gid.raw) == 0; };
  const auto found = std::ranges::find_if(all, same);
  return found != all.end() ? &*found : nullptr;
}

// What somebody who has no queue pair holds.
struct Kept {
  std::shared_ptr<const Device> device;  // with the lock of OpenDevices
};

// Those that somebody holds: to open one takes milliseconds, and a session makes many connections.
class OpenDevices {
 public:
  using ByName = std::map<std::string, std::weak_ptr<const Device>>;
  static OpenDevices& all() {
    static auto& devices = *new OpenDevices;  // whoever ends last may be static too
    return devices;
  }
  // With the lock.
  ByName& by_name() {
    forget_parents();
    return by_name_;
  }
  std::vector<std::weak_ptr<Kept>>& kept() {
    forget_parents();
    return kept_;
  }
  std::vector<std::shared_ptr<const Device>> held() {
    const std::lock_guard lock(mutex);
    std::vector<std::shared_ptr<const Device>> out;
    for (const auto& [name, device] : by_name()) {
      if (auto there = device.lock()) out.push_back(std::move(there));
    }
    return out;
  }
  std::mutex mutex;

 private:
  // A child of a process that forked has its parent's, which the device does not know it by.
  void forget_parents() {
    if (owner_ == ::getpid()) return;
    by_name_.clear();
    kept_.clear();
    owner_ = ::getpid();
  }
  pid_t owner_ = ::getpid();
  ByName by_name_;
  std::vector<std::weak_ptr<Kept>> kept_;
};

std::vector<Path> paths_of_open_devices(const RailChoice& choice) {
  // What was announced before is not about a queue pair that is made now.
  look_at_devices();
  std::vector<Path> out;
  for (const auto& device : OpenDevices::all().held()) {
    if (!device->events().gone()) add_paths(device, choice, out);
  }
  return out;
}

// A machine without any need not have the library, which would speak of that.
bool kernel_has_devices() {
  std::error_code ignored;
  const std::filesystem::directory_iterator all("/sys/class/infiniband", ignored);
  return all != std::filesystem::directory_iterator();
}

}  // namespace

void look_at_devices() {
  OpenDevices& open = OpenDevices::all();
  for (const auto& device : open.held()) device->events().look();
  std::vector<std::shared_ptr<const Device>> over;  // closed after the lock is released: it is older
  const std::lock_guard lock(open.mutex);
  std::erase_if(open.kept(), [&over](const std::weak_ptr<Kept>& keeper) {
    const auto kept = keeper.lock();
    if (kept && kept->device->events().gone()) over.push_back(std::move(kept->device));
    return !kept || !kept->device;
  });
}

std::vector<DeviceReport> device_reports() {
  look_at_devices();
  std::vector<DeviceReport> out;
  for (const auto& device : OpenDevices::all().held()) {
    if (device->events().gone()) continue;
    DeviceReport& report = out.emplace_back();
    report.device = device->name();
    report.port_losses = device->events().port_losses();
    device->counts().fill(report);
  }
  return out;
}

std::shared_ptr<const void> keep_open(std::shared_ptr<const Device> device) {
  auto kept = std::make_shared<Kept>();
  kept->device = std::move(device);
  OpenDevices& open = OpenDevices::all();
  const std::lock_guard lock(open.mutex);
  open.kept().push_back(kept);
  return kept;
}

Result<std::vector<Path>> paths(const RailChoice& choice) {
  if (!kernel_has_devices()) return fail(Errc::kUnsupported, "no RDMA device");
  const auto v = verbs();
  if (!v) return tl::unexpected(v.error());
  const DeviceList list(**v);
  std::vector<Path> out;
  std::string why;
  for (int i = 0; i < list.count; ++i) {
    const auto device = Device::open((*v)->get_device_name(list.devices[i]));
    if (device) {
      add_paths(*device, choice, out);
    } else if (why.empty()) {
      why = ": " + device.error().text;
    }
  }
  if (out.empty())
    return fail(Errc::kUnsupported,
                "no RDMA device can be used" +
                    (why.empty() ? ": no port of RoCE v2 is up, or none that was chosen" : why));
  return out;
}

Result<Path> path_of(const ibv_gid& ours, const RailChoice& choice) {
  const auto open = paths_of_open_devices(choice);
  if (const Path* const path = find_path(open, ours)) return *path;
  const auto all = paths(choice);
  if (!all) return tl::unexpected(all.error());
  if (const Path* const path = find_path(*all, ours)) return *path;
  std::string where;
  if (choice.gid_index >= 0) where = " at entry " + std::to_string(choice.gid_index) + " of its GID table";
  return fail(Errc::kUnsupported, "no RDMA device has the address " + address_of(ours) + where);
}

Result<ibv_gid> gid_of_own_end(int connection) {
  return gid_by(::getsockname, connection);
}

Result<ibv_gid> gid_of_peer(int connection) {
  return gid_by(::getpeername, connection);
}

Result<std::shared_ptr<const Device>> Device::open(const std::string& name) {
  OpenDevices& open = OpenDevices::all();
  const std::lock_guard lock(open.mutex);
  std::weak_ptr<const Device>& held = open.by_name()[name];
  if (auto there = held.lock(); there && !there->events().gone()) return there;
  const auto v = verbs();
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
      return fail(Errc::kSystem, "cannot wait for events of " + name + ": " + tcp::error_text(errno));
    held = device;
    return device;
  }
  return fail(Errc::kUnsupported, "RDMA device " + name + " is gone");
}

Device::~Device() {
  calls_.close_device(context_);
}

}  // namespace sluice::transport::rdma
