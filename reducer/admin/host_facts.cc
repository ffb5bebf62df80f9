#include "reducer/admin/host_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace sluice::reducer::admin {
namespace {

constexpr size_t kMaxLinks = 16;
constexpr double kMegabit = 1e6 / 8;

// Boot time in seconds since the epoch, from /proc/stat.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string word; file >> word;) {
    double value = 0;
    if (word == "btime" && file >> value) return value;
  }
  return 0;
}

uint64_t entries_of(const char* folder) {
  std::error_code error;
  uint64_t n = 0;
  for (auto it = std::filesystem::directory_iterator(folder, error); !error && it != end(it);
       it.increment(error))
    ++n;
  return n;
}

ProcessFacts process_facts() {
  ProcessFacts facts;
  // The command may contain spaces and parentheses, so fields are counted from the third one on, behind it.
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const size_t command_end = line.rfind(')');
  if (command_end != std::string::npos) {
    std::istringstream rest(line.substr(command_end + 1));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    const auto number = [&fields](size_t which) {
      return which - 3 < fields.size() ? std::strtod(fields[which - 3].c_str(), nullptr) : 0.0;
    };
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    facts.cpu_seconds = (number(14) + number(15)) / ticks;
    facts.threads = static_cast<uint64_t>(number(20));
    facts.start_seconds = boot_seconds() + number(22) / ticks;
    facts.virtual_bytes = static_cast<uint64_t>(number(23));
    facts.resident_bytes = static_cast<uint64_t>(number(24)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  }
  facts.open_descriptors = entries_of("/proc/self/fd");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.max_descriptors = limit.rlim_cur;
  return facts;
}

bool has_address(const ifaddrs& entry, const std::string& host) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* address = nullptr;
  if (entry.ifa_addr->sa_family == AF_INET)
    address = &reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr;
  if (entry.ifa_addr->sa_family == AF_INET6)
    address = &reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr;
  return address != nullptr &&
         inet_ntop(entry.ifa_addr->sa_family, address, text.data(), text.size()) != nullptr &&
         host == text.data();
}

std::vector<NetworkLink> links(const std::string& host) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::string> all, with_address;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    all.emplace_back(entry->ifa_name);
    if (has_address(*entry, host)) with_address.emplace_back(entry->ifa_name);
  }
  std::vector<std::string>& names = with_address.empty() ? all : with_address;
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::vector<NetworkLink> found;
  for (const std::string& name : names) {
    if (found.size() == kMaxLinks) break;
    double megabits = 0;  // -1 without a carrier; lo has no speed
    std::ifstream file("/sys/class/net/" + name + "/speed");
    if (file >> megabits && megabits > 0)
      found.push_back({.device = name, .bytes_per_second = static_cast<uint64_t>(megabits * kMegabit)});
  }
  return found;
}

// /proc/net/snmp has two lines for each protocol: names, then numbers.
uint64_t tcp_retransmits() {
  std::ifstream file("/proc/self/net/snmp");
  for (std::string names, numbers; std::getline(file, names) && std::getline(file, numbers);) {
    std::istringstream name_words(names), number_words(numbers);
    std::string name, number;
    name_words >> name;
    number_words >> number;
    if (name != "Tcp:") continue;
    while (name_words >> name && number_words >> number) {
      if (name == "RetransSegs") return std::strtoull(number.c_str(), nullptr, 10);
    }
  }
  return 0;
}

}  // namespace

HostFacts host_facts(const std::string& listen_host) {
  return {.process = process_facts(), .links = links(listen_host), .tcp_retransmits = tcp_retransmits()};
}

}  // namespace sluice::reducer::admin
