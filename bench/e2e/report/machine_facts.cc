#include "bench/e2e/report/machine_facts.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sluice/sluice.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/pool.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {
namespace {

constexpr const char* kUnknown = "unknown";

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

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));  // a cpu_set_t is too small for this machine
}

std::string congestion_control() {
  const transport::tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return kUnknown;
  return name.data();
}

}  // namespace

MachineFacts machine_facts(const std::string& peers, const std::string& local_address) {
  MachineFacts facts{.host = kUnknown,
                     .kernel = kUnknown,
                     .cpu = cpu_model(),
                     .cores = usable_cores(),
                     .memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                     static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
                     .nic = std::nullopt,
                     .congestion_control = congestion_control(),
                     .version = sluice_version(),
                     .revision = revision()};
  if (utsname name{}; uname(&name) == 0) {
    facts.host = name.nodename;
    facts.kernel = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  }
  if (const auto pool = config::read_reducers(peers)) {
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
