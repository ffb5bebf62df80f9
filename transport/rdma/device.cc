#include "transport/rdma/device.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
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
Result<ibv_gid> gid_by(Name name, int tcp_socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ibv_gid gid;
  if (name(tcp_socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 || !gid_of(address, gid))
    return fail(Errc::kReset, "a connection that has no addresses any more");
  return gid;
}

bool query_port(const Verbs& v, ibv_context* context, uint8_t port, ibv_port_attr& out) {
  // The declaration is of the oldest layout, which is the beginning of the newest.
  return v.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(&out)) == 0;
}

void add_paths(const Verbs& v, ibv_device* device, std::vector<Path>& out) {
  ibv_context* const context = v.open_device(device);
  if (context == nullptr) return;
  std::vector<ibv_gid_entry> entries(kMostGids);
  const ssize_t count = v.query_gid_table(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    const auto port = static_cast<uint8_t>(entry.port_num);
    ibv_port_attr attributes{};
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 || !query_port(v, context, port, attributes)) continue;
    if (attributes.state != IBV_PORT_ACTIVE) continue;
    out.push_back({.device = v.get_device_name(device),
                   .port = port,
                   .gid_index = static_cast<uint8_t>(entry.gid_index),
                   .mtu = attributes.active_mtu,
                   .gid = entry.gid,
                   .address = address_of(entry.gid)});
  }
  v.close_device(context);
}

}  // namespace

Result<std::vector<Path>> paths() {
  const auto v = verbs();
  if (!v) return tl::unexpected(v.error());
  const DeviceList list(**v);
  std::vector<Path> out;
  for (int i = 0; i < list.count; ++i) add_paths(**v, list.devices[i], out);
  return out;
}

Result<Path> path_of(int tcp_socket) {
  const auto local = gid_by(::getsockname, tcp_socket);
  if (!local) return tl::unexpected(local.error());
  const ibv_gid& gid = *local;
  auto all = paths();
  if (!all) return tl::unexpected(all.error());
  if (all->empty()) return fail(Errc::kUnsupported, "no RDMA device");
  const auto same = [&](const Path& p) { return std::memcmp(p.gid.raw, gid.raw, sizeof gid.raw) == 0; };
  const auto found = std::ranges::find_if(*all, same);
  if (found != all->end()) return std::move(*found);
  return fail(Errc::kUnsupported, "no RDMA device has the address " + address_of(gid));
}

Result<ibv_gid> gid_of_peer(int tcp_socket) {
  return gid_by(::getpeername, tcp_socket);
}

Result<std::shared_ptr<const Device>> Device::open(const Path& path) {
  static std::mutex mutex;
  static auto& open =
      *new std::map<std::string, std::weak_ptr<const Device>>;  // whoever ends last may be static too
  const std::lock_guard lock(mutex);
  if (auto there = open[path.device].lock()) return there;
  const auto v = verbs();
  if (!v) return tl::unexpected(v.error());
  const DeviceList list(**v);
  for (int i = 0; i < list.count; ++i) {
    if (path.device != (*v)->get_device_name(list.devices[i])) continue;
    ibv_context* const context = (*v)->open_device(list.devices[i]);
    if (context == nullptr)
      return fail(Errc::kSystem, "cannot open RDMA device " + path.device + ": " + tcp::error_text(errno));
    ibv_pd* const domain = (*v)->alloc_pd(context);
    if (domain == nullptr) {
      const std::string why = tcp::error_text(errno);
      (*v)->close_device(context);
      return fail(Errc::kSystem, "no protection domain on " + path.device + ": " + why);
    }
    auto device = std::make_shared<const Device>(**v, context, domain);
    open[path.device] = device;
    return device;
  }
  return fail(Errc::kUnsupported, "RDMA device " + path.device + " is gone");
}

Device::~Device() {
  calls_.dealloc_pd(domain_);
  calls_.close_device(context_);
}

}  // namespace sluice::transport::rdma
