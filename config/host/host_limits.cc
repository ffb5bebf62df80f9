#include "config/host/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "config/file_contents.h"
#include "core/parse_number.h"

namespace sluice::config {
namespace {

constexpr size_t kMaxFile = size_t{4} << 20;  // a host of many containers has thousands of mounts

std::string file_text(const std::string& path) {
  return read_file_contents(path, kMaxFile, FileKind::kRegular).text;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(std::move(word));
  return out;
}

bool has_item(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

// Where a hierarchy of control groups is mounted, and which group that shows: in a container often not "/".
// `controller` is empty for v2. A line is "ID PARENT MAJOR:MINOR GROUP PATH ... - TYPE SOURCE OPTIONS".
std::optional<std::pair<std::string, std::string>> find_mount(const std::string& mountinfo,
                                                              const std::string& controller) {
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    const auto fields = words(line);
    const auto dash = std::ranges::find(fields, "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    if (controller.empty() ? dash[1] == "cgroup2" : dash[1] == "cgroup" && has_item(dash[3], controller))
      return std::pair(fields[4], fields[3]);
  }
  return std::nullopt;
}

// The process's group in a hierarchy, from lines "ID:CONTROLLERS:GROUP"; v2 has no controllers.
std::optional<std::string> find_group(const std::string& groups, const std::string& controller) {
  std::istringstream lines(groups);
  for (std::string id, list, group;
       std::getline(lines, id, ':') && std::getline(lines, list, ':') && std::getline(lines, group);) {
    if (controller.empty() ? list.empty() : has_item(list, controller)) return group;
  }
  return std::nullopt;
}

// The folders of the process's group and its visible ancestors, without the prefix `root`.
std::vector<std::string> group_folders(const std::string& root, const std::string& controller) {
  const auto mount = find_mount(file_text(root + "/proc/self/mountinfo"), controller);
  const auto group = find_group(file_text(root + "/proc/self/cgroup"), controller);
  if (!mount || !group) return {};
  namespace fs = std::filesystem;
  fs::path folder = mount->first;
  std::vector<std::string> out{folder};
  for (const fs::path& part : fs::path(*group).lexically_relative(mount->second)) {
    if (part == "..") return {mount->first};  // a group outside of what is mounted
    if (part == "." || part.empty()) continue;
    folder /= part;
    out.push_back(folder);
  }
  return out;
}

// The number after `key`. Nothing for "max", -1 and files that do not exist.
std::optional<uint64_t> number_in(const std::string& text, const std::string& key = {}) {
  const size_t at = text.find(key);
  const auto fields = words(at == std::string::npos ? std::string() : text.substr(at + key.size()));
  return fields.empty() ? std::nullopt : parse_number<uint64_t>(fields.front());
}

void limit_memory(HostLimits& limits, const std::string& root, const std::string& file,
                  const std::string& key = {}) {
  const auto bytes = number_in(file_text(root + file), key);
  if (!bytes || *bytes == 0 || *bytes >= limits.memory_bytes) return;
  limits.memory_bytes = *bytes;
  limits.memory_file = file;
}

void limit_cpus(HostLimits& limits, const std::string& file, std::optional<uint64_t> quota,
                std::optional<uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return;
  const double cpus = static_cast<double>(*quota) / static_cast<double>(*period);
  if (cpus >= limits.cpus) return;
  limits.cpus = cpus;
  limits.cpu_file = file;
}

uint32_t allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return static_cast<uint32_t>(::sysconf(_SC_NPROCESSORS_ONLN));  // a cpu_set_t is too small for this machine
}

}  // namespace

uint32_t HostLimits::threads() const noexcept {
  return std::max(1u, static_cast<uint32_t>(std::ceil(cpus)));
}

std::string HostLimits::text() const {
  std::string out;
  if (!memory_file.empty())
    out = std::to_string(memory_bytes / 1'000'000) + " MB of memory (" + memory_file + ")";
  if (cpu_file.empty()) return out;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%.3g", cpus);
  return out + (out.empty() ? "" : " and ") + number.data() + " CPUs (" + cpu_file + ")";
}

HostLimits host_limits_below(const std::string& root, uint64_t memory_bytes, uint32_t cpus) {
  HostLimits limits{.memory_bytes = memory_bytes, .cpus = static_cast<double>(cpus)};
  for (const std::string& group : group_folders(root, "")) {
    limit_memory(limits, root, group + "/memory.max");
    limit_memory(limits, root, group + "/memory.high");  // beyond it the kernel stops the process to reclaim
    const auto quota = words(file_text(root + group + "/cpu.max"));
    if (quota.size() == 2)
      limit_cpus(limits, group + "/cpu.max", parse_number<uint64_t>(quota[0]),
                 parse_number<uint64_t>(quota[1]));
  }
  for (const std::string& group : group_folders(root, "memory")) {
    limit_memory(limits, root, group + "/memory.limit_in_bytes");
    // The smallest limit of the group and all its ancestors, of which a container sees none.
    limit_memory(limits, root, group + "/memory.stat", "hierarchical_memory_limit");
  }
  for (const std::string& group : group_folders(root, "cpu")) {
    limit_cpus(limits, group + "/cpu.cfs_quota_us", number_in(file_text(root + group + "/cpu.cfs_quota_us")),
               number_in(file_text(root + group + "/cpu.cfs_period_us")));
  }
  return limits;
}

HostLimits host_limits() {
  const auto pages = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES));
  return host_limits_below("", pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)), allowed_cpus());
}

Result<void> check_memory_limit(const std::string& option, uint64_t bytes) {
  const HostLimits host = host_limits();
  if (bytes <= host.memory_bytes) return {};
  const std::string file = host.memory_file.empty() ? "" : " (" + host.memory_file + ")";
  return fail(Errc::kMemoryLimit, option + " is " + std::to_string(bytes / 1'000'000) +
                                      " MB, but this process may use only " +
                                      std::to_string(host.memory_bytes / 1'000'000) + " MB" + file);
}

}  // namespace sluice::config
