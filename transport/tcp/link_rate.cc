#include "transport/tcp/link_rate.h"

#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>

namespace sluice::transport::tcp {
namespace {

constexpr uint64_t kMegabit = 1'000'000;
constexpr uint64_t kMaxMegabits = 10'000'000;  // more is a driver's way to say that it does not know
constexpr uint64_t kUnknown16 = UINT16_MAX;    // of drivers with the older field of 16 bits

// The address in IPv6 form: an IPv4 address is mapped. The unspecified address for other families.
in6_addr ipv6_form(const sockaddr& address) {
  in6_addr out{};
  if (address.sa_family == AF_INET6) out = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  if (address.sa_family == AF_INET) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    if (v4.s_addr == INADDR_ANY) return out;
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(&out.s6_addr[12], &v4, sizeof v4);
  }
  return out;
}

bool is_unspecified(const in6_addr& address) {
  return IN6_IS_ADDR_UNSPECIFIED(&address);
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// True if the interface lies above another one that is visible here, such as a bond or a VLAN.
bool has_lower_interface(const std::string& folder) {
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != end(it);
       it.increment(error)) {
    if (it->path().filename().string().starts_with("lower_")) return true;
  }
  return false;
}

bool is_real_link(const std::string& folder) {
  if (exists(folder + "/device")) return true;
  return !exists(folder + "/bridge") && has_lower_interface(folder);
}

std::string folder_of(const std::string& name, const std::string& sys) {
  return sys + "/class/net/" + name;
}

}  // namespace

uint64_t interface_rate(const std::string& name, const std::string& sys) {
  const std::string folder = folder_of(name, sys);
  if (!is_real_link(folder)) return 0;
  int64_t megabits = 0;  // -1, or no readable file, without a carrier or on a virtual machine
  std::ifstream file(folder + "/speed");
  if (!(file >> megabits) || megabits <= 0) return 0;
  const auto rate = static_cast<uint64_t>(megabits);
  return rate > kMaxMegabits || rate == kUnknown16 ? 0 : rate * kMegabit;
}

uint64_t link_rate(const sockaddr_storage& local, const ifaddrs* interfaces, const std::string& sys) {
  const in6_addr wanted = ipv6_form(reinterpret_cast<const sockaddr&>(local));
  std::set<std::string> candidates;
  for (const ifaddrs* i = interfaces; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const in6_addr own = ipv6_form(*i->ifa_addr);
    if (is_unspecified(own)) continue;  // of another family
    if (!is_unspecified(wanted)) {
      if (std::memcmp(&own, &wanted, sizeof own) == 0) return interface_rate(i->ifa_name, sys);
    } else if (is_real_link(folder_of(i->ifa_name, sys))) {
      candidates.emplace(i->ifa_name);
    }
  }
  return candidates.size() == 1 ? interface_rate(*candidates.begin(), sys) : 0;
}

uint64_t link_rate(const sockaddr_storage& local) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return 0;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  return link_rate(local, list, "/sys");
}

}  // namespace sluice::transport::tcp
