#include "reducer/numa_affinity.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <system_error>

namespace sluice::reducer {
namespace {

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<int> parse_int(std::string_view text) {
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// Parses the kernel's format of CPU lists, e.g. "0-15,32-47".
cpu_set_t parse_cpu_list(std::string_view text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t dash = item.find('-');
    const auto first = parse_int(item.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_int(item.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (int cpu = *first; cpu <= *last && cpu < CPU_SETSIZE; ++cpu) CPU_SET(static_cast<size_t>(cpu), &set);
  }
  return set;
}

}  // namespace

std::optional<NumaCpus> cpus_near(const std::vector<std::string>& devices, const cpu_set_t& allowed,
                                  const std::string& sys) {
  if (devices.empty()) return std::nullopt;
  // "0" or "0-3". A single node needs no affinity.
  const auto nodes = first_line(sys + "/devices/system/node/online");
  if (!nodes || parse_int(*nodes)) return std::nullopt;
  std::optional<int> node;
  for (const std::string& device : devices) {
    const auto text = first_line(sys + "/class/infiniband/" + device + "/device/numa_node");
    const auto of_device = text ? parse_int(*text) : std::nullopt;
    if (!of_device || *of_device < 0 || (node && node != of_device)) return std::nullopt;
    node = of_device;
  }
  const auto list = first_line(sys + "/devices/system/node/node" + std::to_string(*node) + "/cpulist");
  if (!list) return std::nullopt;
  NumaCpus near{.set = parse_cpu_list(*list), .node = *node};
  CPU_AND(&near.set, &near.set, &allowed);
  if (CPU_COUNT(&near.set) == 0) return std::nullopt;
  return near;
}

ScopedCpuAffinity::ScopedCpuAffinity(const std::optional<NumaCpus>& cpus) noexcept {
  if (!cpus || sched_getaffinity(0, sizeof previous_, &previous_) != 0) return;
  is_pinned_ = sched_setaffinity(0, sizeof cpus->set, &cpus->set) == 0;
}

ScopedCpuAffinity::~ScopedCpuAffinity() {
  if (is_pinned_) (void)sched_setaffinity(0, sizeof previous_, &previous_);
}

}  // namespace sluice::reducer
