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

bool is_mapped_ipv4(const ibv_gid& gid) {
  static constexpr std::array<uint8_t, 12> kPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix.data(), kPrefix.size()) == 0;
}

std::string gid_text(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool v4 = is_mapped_ipv4(gid);
  ::inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? gid.raw + 12 : gid.raw, text.data(), text.size());
  return text.data();
}

// A GID holds an IPv4 address in its IPv6-mapped form.
bool to_gid(const sockaddr_storage& address, ibv_gid& gid) {
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

// `get_name` is getsockname or getpeername.
template <typename GetName>
Result<ibv_gid> socket_gid(GetName get_name, int connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ibv_gid gid;
  if (get_name(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0 || !to_gid(address, gid))
    return fail(Errc::kReset, "connection closed: its addresses are no longer known");
  return gid;
}

bool query_port(const Verbs& v, ibv_context* context, uint8_t port, ibv_port_attr& out) {
  // The function is declared with the oldest layout of the structure, which is a prefix of the newest.
  return v.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out)) == 0;
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
                   .address = gid_text(entry.gid)});
  }
}

const LocalPath* find_by_gid(const std::vector<LocalPath>& all, const ibv_gid& gid) {
  const auto has_gid = [&](const LocalPath& p) {
    return std::memcmp(p.gid.raw, gid.raw, sizeof gid.raw) == 0;
  };
  const auto found = std::ranges::find_if(all, has_gid);
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

Result<LocalPath> find_local_path(const ibv_gid& local, const RailChoice& choice) {
  const auto open = paths_of_open_devices(choice);
  if (const LocalPath* const path = find_by_gid(open, local)) return *path;
  const auto all = find_local_paths(choice);
  if (!all) return tl::unexpected(all.error());
  if (const LocalPath* const path = find_by_gid(*all, local)) return *path;
  std::string index;
  if (choice.gid_index >= 0) index = " at GID index " + std::to_string(choice.gid_index);
  return fail(Errc::kUnsupported, "no RDMA device has the address " + gid_text(local) + index);
}

Result<ibv_gid> local_gid_of(int connection) {
  return socket_gid(::getsockname, connection);
}

Result<ibv_gid> peer_gid_of(int connection) {
  return socket_gid(::getpeername, connection);
}

}  // namespace sluice::transport::rdma
