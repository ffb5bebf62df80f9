#include "nccl_plugin/host/devices.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>

#include "config/name_list.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl {
namespace {

namespace fs = std::filesystem;

struct FreeInterfaces {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

// The order of NCCL's default search: physical networks, then those of containers and virtual machines, then
// loopback.
constexpr const char* kDefaultInterfaces[] = {"^docker,lo,virbr", "docker", "lo", "virbr"};

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address.sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  return ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) != nullptr ? text.data() : "";
}

// True for an address that other hosts can connect to. A link-local address needs a scope, which is local to
// the host.
bool is_reachable(const sockaddr& address) {
  if (address.sa_family == AF_INET) return true;
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& a = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return !IN6_IS_ADDR_LINKLOCAL(&a) && !IN6_IS_ADDR_LOOPBACK(&a) && !IN6_IS_ADDR_MULTICAST(&a);
}

// "0000:3b:00.1"
bool is_pci_function(const std::string& name) {
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  const size_t n = name.size();
  return n >= 12 && name[n - 2] == '.' && name[n - 5] == ':' && name[n - 8] == ':' && is_hex(name[n - 1]) &&
         is_hex(name[n - 3]) && std::all_of(name.begin(), name.end() - 8, is_hex);
}

// The PCI function of the interface; for a virtio device, the PCI function of its parent.
std::string pci_path(const fs::path& interface) {
  std::error_code error;
  const fs::path device = fs::canonical(interface / "device", error);
  if (error) return {};
  if (is_pci_function(device.filename().string())) return device.string();
  if (is_pci_function(device.parent_path().filename().string())) return device.parent_path().string();
  return {};
}

uint32_t speed(const fs::path& interface, const DeviceOptions& options) {
  if (options.speed_mbps != 0) return options.speed_mbps;
  std::ifstream file(interface / "speed");  // missing, unreadable or -1 for virtual interfaces
  long value = 0;
  return file >> value && value > 0 && value <= 10'000'000 ? static_cast<uint32_t>(value) : 10'000;
}

// When the kernel does not report a state ("unknown", or no file), the flags of the interface decide.
bool is_operational(const fs::path& interface) {
  std::ifstream file(interface / "operstate");
  std::string state;
  return !(file >> state) || (state != "down" && state != "lowerlayerdown" && state != "notpresent");
}

std::vector<Device> find_matching(const ifaddrs* list, const std::string& interfaces,
                                  const DeviceOptions& options) {
  std::vector<Device> found;
  // The kernel lists an interface once per address. The first entry adds the interface; a later IPv4 address
  // replaces an IPv6 address.
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || !is_reachable(*i->ifa_addr)) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0) continue;
    if (!config::is_listed(interfaces, i->ifa_name)) continue;
    const bool v4 = i->ifa_addr->sa_family == AF_INET;
    const auto known = std::ranges::find(found, i->ifa_name, &Device::name);
    if (known != found.end()) {
      const bool known_is_v6 = known->address.find(':') != std::string::npos;
      if (v4 && known_is_v6) known->address = address_text(*i->ifa_addr);
      continue;
    }
    const fs::path sysfs_path = fs::path(options.sysfs) / "class" / "net" / i->ifa_name;
    if (!is_operational(sysfs_path) || found.size() == abi::kMaxDevices) continue;
    found.push_back({.name = i->ifa_name,
                     .pci_path = pci_path(sysfs_path),
                     .address = address_text(*i->ifa_addr),
                     .guid = ::if_nametoindex(i->ifa_name),
                     .speed_mbps = speed(sysfs_path, options)});
  }
  return found;
}

}  // namespace

std::vector<Device> find_devices(const DeviceOptions& options) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  if (!options.interfaces.empty()) return find_matching(list.get(), options.interfaces, options);
  for (const char* interfaces : kDefaultInterfaces) {
    auto found = find_matching(list.get(), interfaces, options);
    if (!found.empty()) return found;
  }
  return {};
}

std::string active_rdma_device(const std::string& sysfs) {
  std::error_code error;
  std::vector<std::string> active;
  for (fs::directory_iterator device(fs::path(sysfs) / "class" / "infiniband", error), end;
       !error && device != end; device.increment(error)) {
    std::error_code none;
    for (fs::directory_iterator port(device->path() / "ports", none); !none && port != end;
         port.increment(none)) {
      std::ifstream file(port->path() / "state");  // "4: ACTIVE"
      std::string state;
      if (std::getline(file, state) && state.find("ACTIVE") != std::string::npos &&
          state.find("ACTIVE_DEFER") == std::string::npos)
        active.push_back(device->path().filename().string());
    }
  }
  // Sysfs has no fixed order; the minimum makes the result the same on every call.
  return active.empty() ? std::string() : *std::ranges::min_element(active);
}

}  // namespace sluice::nccl
