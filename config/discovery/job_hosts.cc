// Batch systems and launchers list the hosts of a job without roles. The reducers are the last
// SLUICE_REDUCER_COUNT hosts: the first host mostly runs the job's script. Volcano has a list for each task.
#include <algorithm>
#include <set>
#include <utility>

#include "config/discovery/sources.h"
#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::config::discovery {
namespace {

struct Platform {
  std::string_view name;
  std::string_view variable;  // lists the hosts, or names a file that does
  bool is_file;               // the first word of each line is a host
  std::string_view index;     // variable with the position of this host in the list; empty: none
};

// A host may appear once per slot.
constexpr Platform kPlatforms[] = {
    {"SkyPilot", "SKYPILOT_NODE_IPS", false, "SKYPILOT_NODE_RANK"},
    {"Azure Batch", "AZ_BATCH_HOST_LIST", false, ""},
    {"LSF", "LSB_DJOB_HOSTFILE", true, ""},
    {"PBS", "PBS_NODEFILE", true, ""},
    {"Grid Engine", "PE_HOSTFILE", true, ""},
};
constexpr std::string_view kVolcano = "VC_REDUCER_HOSTS";  // of the task "reducer"
constexpr std::string_view kSeparators = " \t\r\n,;";

using Names = std::vector<std::string>;

// Returns the different hosts in their order.
Names hosts_of(std::string_view text, bool is_file) {
  Names names;
  std::set<std::string, std::less<>> seen;
  for (size_t begin = 0; (begin = text.find_first_not_of(kSeparators, begin)) != text.npos;) {
    size_t end = std::min(text.find_first_of(kSeparators, begin), text.size());
    std::string name(text.substr(begin, end - begin));
    if (is_file) end = std::min(text.find('\n', begin), text.size());
    begin = end;
    if (seen.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

bool is_address(std::string_view host) {
  return host.find(':') != host.npos || host.find_first_not_of("0123456789.") == host.npos;
}

std::optional<size_t> own_position(const Environment& env, const Names& names, std::string_view index) {
  if (!index.empty()) {
    const auto text = env.variable(index);
    const auto position = text ? parse_number<size_t>(*text) : std::nullopt;
    if (position && *position < names.size()) return position;
  }
  const auto first_label = [](std::string_view host) { return host.substr(0, host.find('.')); };
  const std::string own = env.host_name();
  const Names addresses = env.addresses ? env.addresses() : Names();
  const auto at = std::ranges::find_if(names, [&](const std::string& name) {
    if (is_address(name)) return std::ranges::find(addresses, name) != addresses.end();
    return !own.empty() && first_label(name) == first_label(own);
  });
  if (at == names.end()) return std::nullopt;
  return static_cast<size_t>(at - names.begin());
}

// The reducers are the names from `first` on.
SourceResult result_of(const Environment& env, const Names& names, size_t first, std::string_view variable,
                       std::string_view index) {
  DiscoveryResult result;
  for (size_t i = first; i < names.size(); ++i) {
    const bool is_ipv6 = names[i].find(':') != std::string::npos;
    SLUICE_RETURN_IF_ERROR(add_endpoint(is_ipv6 ? '[' + names[i] + ']' : names[i],
                                        std::string(variable) + ": ", result.reducers));
  }
  result.workers = static_cast<uint32_t>(first);
  const auto own = own_position(env, names, index);
  if (own) {
    result.role = *own >= first ? Role::kReducer : Role::kWorker;
    result.index = static_cast<uint32_t>(*own >= first ? *own - first : *own);
  } else if (first == 0) {
    result.role = Role::kWorker;
  } else {
    result.notes.push_back("host " + printable(env.host_name()) + " is not in " + std::string(variable));
  }
  return result;
}

}  // namespace

SourceResult from_job_hosts(const Environment& env) {
  if (const auto list = env.variable(kVolcano)) {
    const Names names = hosts_of(*list, false);
    if (names.empty()) return invalid(std::string(kVolcano) + " lists no host");
    return result_of(env, names, 0, kVolcano, "");
  }
  SLUICE_ASSIGN_OR_RETURN(count, reducer_count(env));
  if (!count) return NotConfigured{.reason = "SLUICE_REDUCER_COUNT is not set"};
  if (env.variable("SLUICE_REDUCER_SERVICE"))
    return NotConfigured{.reason = "SLUICE_REDUCER_COUNT belongs to SLUICE_REDUCER_SERVICE"};
  for (const Platform& platform : kPlatforms) {
    auto text = env.variable(platform.variable);
    if (!text) continue;
    const std::string variable(platform.variable);
    if (platform.is_file) {
      const std::string path = *text;
      SLUICE_ASSIGN_OR_RETURN(content, env.read_file(path));
      if (!content) return fail(Errc::kSystem, variable + ": file " + printable(path) + " does not exist");
      text = std::move(content);
    }
    const Names names = hosts_of(*text, platform.is_file);
    if (names.size() <= *count) {
      return invalid("SLUICE_REDUCER_COUNT=" + std::to_string(*count) + ", but " + variable + " (" +
                     std::string(platform.name) + ") lists " + std::to_string(names.size()) +
                     " hosts; at least one must remain for workers");
    }
    return result_of(env, names, names.size() - *count, variable, platform.index);
  }
  return NotConfigured{.reason = "no host list of a known batch system is set"};
}

}  // namespace sluice::config::discovery
