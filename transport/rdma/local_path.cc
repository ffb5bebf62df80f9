#include "transport/rdma/local_path.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace sluice::transport::rdma {
namespace {

constexpr size_t kMaxGids = 256;

constexpr Gid kMappedIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMappedPrefix = 12;

std::string gid_text(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = std::equal(gid.begin(), gid.begin() + kMappedPrefix, kMappedIpv4.begin());
  ::inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? &gid[kMappedPrefix] : gid.data(), text.data(), text.size());
  return text.data();
}

// `get_name` is getsockname or getpeername. False when the connection has no IP address any more.
template <typename GetName>
bool read_gid(GetName get_name, int connection, Gid& gid) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (get_name(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  if (address.ss_family == AF_INET) {
    gid = kMappedIpv4;
    std::memcpy(&gid[kMappedPrefix], &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return true;
  }
  std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, gid.size());
  return address.ss_family == AF_INET6;
}

void append_paths(const std::shared_ptr<const Device>& device, const RailChoice& choice,
                  std::vector<LocalPath>& out) {
  const Verbs& v = device->verbs();
  std::vector<ibv_gid_entry> entries(kMaxGids);
  const ssize_t count =
      v.query_gid_table(device->context(), entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    const auto port = static_cast<uint8_t>(entry.port_num);
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    ibv_port_attr attributes{};
    // The function is declared with the oldest layout of the structure, which is a prefix of the newest.
    auto* const oldest = reinterpret_cast<_compat_ibv_port_attr*>(&attributes);
    if (v.query_port(device->context(), port, oldest) != 0 || attributes.state != IBV_PORT_ACTIVE) continue;
    if (choice.allows && !choice.allows(device->name(), port)) continue;
    if (choice.gid_index >= 0 && entry.gid_index != static_cast<uint32_t>(choice.gid_index)) continue;
    out.push_back({.device = device,
                   .port = port,
                   .gid_index = static_cast<uint8_t>(entry.gid_index),
                   .mtu = attributes.active_mtu,
                   .gid = std::to_array(entry.gid.raw),
                   .address = gid_text(std::to_array(entry.gid.raw))});
  }
}

const LocalPath* find_by_gid(const std::vector<LocalPath>& all, const Gid& gid) {
  const auto found = std::ranges::find(all, gid, &LocalPath::gid);
  return found != all.end() ? &*found : nullptr;
}

std::vector<LocalPath> paths_of_open_devices(const RailChoice& choice) {
  // Handle earlier events first: they do not concern a queue pair that is created now.
  poll_device_events();
  std::vector<LocalPath> out;
  for (const auto& device : open_devices()) {
    if (!device->events().is_removed()) append_paths(device, choice, out);
  }
  return out;
}

// Checked before libibverbs is loaded, so that a host without devices does not need the library.
bool kernel_has_devices() {
  std::error_code ignored;
  const std::filesystem::directory_iterator all("/sys/class/infiniband", ignored);
  return all != std::filesystem::directory_iterator();
}

}  // namespace

Result<std::vector<LocalPath>> find_local_paths(const RailChoice& choice) {
  if (!kernel_has_devices()) return fail(Errc::kUnsupported, "no RDMA device");
  const auto v = load_verbs();
  if (!v) return tl::unexpected(v.error());
  const DeviceList list(**v);
  std::vector<LocalPath> out;
  std::string reason;
  for (int i = 0; i < list.count; ++i) {
    const auto device = Device::open((*v)->get_device_name(list.devices[i]));
    if (device) {
      append_paths(*device, choice, out);
    } else if (reason.empty()) {
      reason = device.error().text;
    }
  }
  if (reason.empty()) reason = "no selected port has an active RoCE v2 address";
  if (out.empty()) return fail(Errc::kUnsupported, "no RDMA device can be used: " + reason);
  return out;
}

Result<LocalPath> find_local_path(const Gid& local, const RailChoice& choice) {
  const auto open = paths_of_open_devices(choice);
  if (const LocalPath* const path = find_by_gid(open, local)) return *path;
  const auto all = find_local_paths(choice);
  if (!all) return tl::unexpected(all.error());
  if (const LocalPath* const path = find_by_gid(*all, local)) return *path;
  std::string index;
  if (choice.gid_index >= 0) index = " at GID index " + std::to_string(choice.gid_index);
  return fail(Errc::kUnsupported, "no RDMA device has the address " + gid_text(local) + index);
}

Result<ConnectionGids> connection_gids(int connection) {
  ConnectionGids gids;
  if (!read_gid(::getsockname, connection, gids.local) || !read_gid(::getpeername, connection, gids.peer))
    return fail(Errc::kReset, "connection closed: its addresses are no longer known");
  return gids;
}

}  // namespace sluice::transport::rdma
