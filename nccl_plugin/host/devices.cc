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

// As NCCL looks when it is not told: first the networks proper, then what containers and virtual machines
// have, loopback when there is nothing else.
constexpr const char* kAny[] = {"^docker,lo,virbr", "docker", "lo", "virbr"};

std::string numeric(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address.sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr);
  return ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) != nullptr ? text.data() : "";
}

// One that another host can be told: link-local needs a scope that only this host knows, ::1 is this host.
bool usable(const sockaddr& address) {
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

// The function itself, or the one that a virtio device hangs on.
std::string pci_path(const fs::path& interface) {
  std::error_code error;
  const fs::path device = fs::canonical(interface / "device", error);
  if (error) return {};
  if (is_pci_function(device.filename().string())) return device.string();
  if (is_pci_function(device.parent_path().filename().string())) return device.parent_path().string();
  return {};
}

uint32_t speed(const fs::path& interface, const DeviceRules& rules) {
  if (rules.speed_mbps != 0) return rules.speed_mbps;
  std::ifstream file(interface /
                     "speed");  // missing, unreadable or -1 for interfaces without a link of their own
  long value = 0;
  return file >> value && value > 0 && value <= 10'000'000 ? static_cast<uint32_t>(value) : 10'000;
}

// Where the kernel says nothing ("unknown", or no file) the interface's flags must do.
bool operates(const fs::path& interface) {
  std::ifstream file(interface / "operstate");
  std::string state;
  return !(file >> state) || (state != "down" && state != "lowerlayerdown" && state != "notpresent");
}

std::vector<Device> matching(const ifaddrs* list, const std::string& interfaces, const DeviceRules& rules) {
  std::vector<Device> found;
  // Twice round, since an interface's IPv6 address may stand before its IPv4 one: who is on the list first,
  // then with which address.
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || !usable(*i->ifa_addr)) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_RUNNING) == 0) continue;
    if (!config::is_listed(interfaces, i->ifa_name)) continue;
    const bool v4 = i->ifa_addr->sa_family == AF_INET;
    const auto known = std::ranges::find(found, i->ifa_name, &Device::name);
    if (known != found.end()) {
      const bool known_is_v6 = known->address.find(':') != std::string::npos;
      if (v4 && known_is_v6) known->address = numeric(*i->ifa_addr);
      continue;
    }
    const fs::path in_sysfs = fs::path(rules.sysfs) / "class" / "net" / i->ifa_name;
    if (!operates(in_sysfs) || found.size() == abi::kMaxDevices) continue;
    found.push_back({.name = i->ifa_name,
                     .pci_path = pci_path(in_sysfs),
                     .address = numeric(*i->ifa_addr),
                     .guid = ::if_nametoindex(i->ifa_name),
                     .speed_mbps = speed(in_sysfs, rules)});
  }
  return found;
}

}  // namespace

std::vector<Device> find_devices(const DeviceRules& rules) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  if (!rules.interfaces.empty()) return matching(list.get(), rules.interfaces, rules);
  for (const char* interfaces : kAny) {
    auto found = matching(list.get(), interfaces, rules);
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
  // The kernel lists them in any order; the same answer every time.
  return active.empty() ? std::string() : *std::ranges::min_element(active);
}

}  // namespace sluice::nccl
