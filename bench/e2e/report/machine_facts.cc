#include "bench/e2e/report/machine_facts.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sluice/sluice.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "config/host/host_limits.h"
#include "config/pool.h"
#include "core/revision.h"
#include "core/units.h"
#include "transport/tcp/address.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

constexpr const char* kUnknown = "unknown";
constexpr uint16_t kDiscardPort = 9;  // connect() of a datagram socket sends no packet

struct FreeInterfaces {
  void operator()(ifaddrs* list) const noexcept { freeifaddrs(list); }
};

bool same_host(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(b)->sin_addr, sizeof(in_addr)) == 0;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

tl::unexpected<Error> system_error(const std::string& object) {
  return fail(Errc::kSystem, fmt::format("{}: {}", object, tcp::error_text(errno)));
}

// Returns the name of the interface with the address `local`, or the loopback interface when `peer` is an
// address of this host.
std::string interface_name(const sockaddr* local, const sockaddr* peer) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(raw);
  std::string with_local;
  std::string loopback;
  bool peer_is_local = false;
  for (const ifaddrs* i = raw; i != nullptr; i = i->ifa_next) {
    if ((i->ifa_flags & IFF_LOOPBACK) != 0) loopback = i->ifa_name;
    if (same_host(i->ifa_addr, local) && with_local.empty()) with_local = i->ifa_name;
    if (same_host(i->ifa_addr, peer)) peer_is_local = true;
  }
  return peer_is_local ? loopback : with_local;
}

void query_driver(int fd, NicFacts& nic) {
  ifreq request{};
  nic.name.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(fd, SIOCGIFMTU, &request) == 0) nic.mtu = request.ifr_mtu;
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  request.ifr_data = reinterpret_cast<char*>(&info);
  if (ioctl(fd, SIOCETHTOOL, &request) == 0) nic.driver = info.driver;
  ethtool_cmd link{};
  link.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&link);
  if (ioctl(fd, SIOCETHTOOL, &request) != 0) return;
  const uint32_t speed = ethtool_cmd_speed(&link);
  // Drivers with the older 16-bit field report an unknown speed as 65535.
  if (speed != static_cast<uint32_t>(SPEED_UNKNOWN) && speed != UINT16_MAX) nic.speed_mbit = speed;
}

// Returns the value of "model name : X" on x86. Other processors use other keys, or none.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key == "model name" || key == "cpu model" || key == "Model") return line.substr(colon + 2);
  }
  return kUnknown;
}

std::string congestion_control() {
  const tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return kUnknown;
  return name.data();
}

}  // namespace

Result<NicFacts> find_nic_to_peer(const std::string& host, const std::string& local_address) {
  auto peers = tcp::resolve(host, kDiscardPort, AF_UNSPEC, 0);
  if (!peers) return tl::unexpected<Error>(peers.error());
  const addrinfo& peer = **peers;
  const tcp::Socket socket(::socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("socket");
  if (!local_address.empty()) {
    auto local = tcp::resolve(local_address, 0, peer.ai_family, AI_NUMERICHOST);
    if (!local) return tl::unexpected<Error>(local.error());
    if (bind(socket.fd(), (*local)->ai_addr, (*local)->ai_addrlen) != 0) return system_error(local_address);
  }
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  if (connect(socket.fd(), peer.ai_addr, peer.ai_addrlen) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&from), &length) != 0) {
    return system_error(host);
  }
  NicFacts nic;
  nic.name = interface_name(reinterpret_cast<const sockaddr*>(&from), peer.ai_addr);
  if (nic.name.empty())
    return fail(Errc::kSystem, host + ": no interface has the source address of the route");
  query_driver(socket.fd(), nic);
  return nic;
}

MachineFacts machine_facts(const std::string& peers, const std::string& local_address) {
  const config::HostLimits limits = config::host_limits();
  MachineFacts facts{.host = kUnknown,
                     .kernel = kUnknown,
                     .cpu = cpu_model(),
                     .cores = limits.threads(),
                     .memory_bytes = limits.memory_bytes,
                     .nic = std::nullopt,
                     .congestion_control = congestion_control(),
                     .version = sluice_version(),
                     .revision = revision()};
  if (utsname name{}; uname(&name) == 0) {
    facts.host = name.nodename;
    facts.kernel = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  if (const auto pool = config::read_reducers(peers); pool && !pool->empty()) {
    if (auto nic = find_nic_to_peer(pool->front().host, local_address)) facts.nic = std::move(*nic);
  }
  return facts;
}

nlohmann::ordered_json to_json(const MachineFacts& facts) {
  nlohmann::ordered_json json = {{"host", facts.host},
                                 {"kernel", facts.kernel},
                                 {"cpu", facts.cpu},
                                 {"cores", facts.cores},
                                 {"memory_bytes", facts.memory_bytes},
                                 {"nic", nullptr},
                                 {"congestion_control", facts.congestion_control},
                                 {"sluice_version", facts.version},
                                 {"revision", facts.revision}};
  if (facts.nic) {
    auto& nic = json["nic"] = {
        {"name", facts.nic->name}, {"driver", nullptr}, {"speed_mbit", nullptr}, {"mtu", facts.nic->mtu}};
    if (!facts.nic->driver.empty()) nic["driver"] = facts.nic->driver;
    if (facts.nic->speed_mbit != 0) nic["speed_mbit"] = facts.nic->speed_mbit;
  }
  return json;
}

std::string text_of(const MachineFacts& facts) {
  std::string network = "no network";
  if (facts.nic) {
    network = facts.nic->name;
    if (!facts.nic->driver.empty()) network += fmt::format(" ({})", facts.nic->driver);
    if (facts.nic->speed_mbit != 0) network += fmt::format(" {} Mb/s", facts.nic->speed_mbit);
    network += fmt::format(", MTU {}, {}", facts.nic->mtu, facts.congestion_control);
  }
  return fmt::format("# machine: {}, {}, {}, {} cores, {:.1f} GiB\n# network: {}; sluice {}, revision {}\n",
                     facts.host, facts.kernel, facts.cpu, facts.cores,
                     static_cast<double>(facts.memory_bytes) / kGiB, network, facts.version, facts.revision);
}

}  // namespace sluice::bench
