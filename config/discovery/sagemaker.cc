// SageMaker writes the file on every host. The SM_* variables exist only in images with its training toolkit.
#include <algorithm>
#include <map>
#include <utility>

#include "config/discovery/json_node.h"
#include "config/discovery/natural_order.h"
#include "config/discovery/sources.h"
#include "config/printable_text.h"

namespace sluice::config::discovery {
namespace {

constexpr const char* kFile = "/opt/ml/input/config/resourceconfig.json";

using Hosts = LocatedTexts;

struct Cluster {
  std::string own_host;
  std::string own_group = {};  // empty: unknown
  std::map<std::string, Hosts> groups = {};
  std::string groups_location;
  Hosts hosts = {};  // of all groups
};

Result<std::string> optional_text(const JsonNode& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    SLUICE_ASSIGN_OR_RETURN(member, object.member(name));
    if (member) return member->text();
  }
  return std::string();
}

Result<void> add_group(const JsonNode& group, Cluster& to) {
  SLUICE_ASSIGN_OR_RETURN(name, optional_text(group, {"instance_group_name"}));
  if (name.empty()) return group.error("missing member \"instance_group_name\"");
  SLUICE_ASSIGN_OR_RETURN(hosts, group.member_texts("hosts"));
  to.groups[name] = std::move(hosts);
  return {};
}

Result<Cluster> read_resource_config(const JsonNode& document) {
  SLUICE_ASSIGN_OR_RETURN(host, optional_text(document, {"current_host"}));
  if (host.empty()) return document.error("missing member \"current_host\"");
  SLUICE_ASSIGN_OR_RETURN(group, optional_text(document, {"current_group_name", "current_instance_group"}));
  SLUICE_ASSIGN_OR_RETURN(hosts, document.member_texts("hosts"));
  Cluster out{.own_host = std::move(host),
              .own_group = std::move(group),
              .groups_location = document.location() + "/instance_groups",
              .hosts = std::move(hosts)};
  SLUICE_ASSIGN_OR_RETURN(groups, document.member("instance_groups"));
  if (!groups) return out;
  SLUICE_ASSIGN_OR_RETURN(elements, groups->elements());
  for (const JsonNode& element : elements) SLUICE_RETURN_IF_ERROR(add_group(element, out));
  return out;
}

Result<Cluster> read_variables(const Environment& env, std::string host) {
  Cluster out{.own_host = std::move(host),
              .own_group = env.variable("SM_CURRENT_INSTANCE_GROUP").value_or(""),
              .groups_location = "SM_INSTANCE_GROUPS_DICT"};
  if (const auto text = env.variable("SM_HOSTS")) {
    SLUICE_ASSIGN_OR_RETURN(hosts, JsonNode::parse("SM_HOSTS", *text).and_then(&JsonNode::texts));
    out.hosts = std::move(hosts);
  }
  const auto text = env.variable("SM_INSTANCE_GROUPS_DICT");
  if (!text) return out;
  SLUICE_ASSIGN_OR_RETURN(groups,
                          JsonNode::parse("SM_INSTANCE_GROUPS_DICT", *text).and_then(&JsonNode::members));
  for (const auto& [name, group] : groups) {
    SLUICE_ASSIGN_OR_RETURN(hosts, group.member_texts("hosts"));
    out.groups[name] = std::move(hosts);
  }
  return out;
}

// Returns nothing when this host is not a SageMaker host.
Result<std::optional<Cluster>> read_cluster(const Environment& env) {
  const std::string path = env.variable("SLUICE_SM_RESOURCE_CONFIG").value_or(kFile);
  SLUICE_ASSIGN_OR_RETURN(text, env.read_file(path));
  std::string origin = path;
  if (!text) {
    text = env.variable("SM_RESOURCE_CONFIG");
    origin = "SM_RESOURCE_CONFIG";
  }
  if (text) return JsonNode::parse(origin, *text).and_then(read_resource_config);
  if (auto host = env.variable("SM_CURRENT_HOST")) return read_variables(env, std::move(*host));
  return std::optional<Cluster>();
}

const Hosts* reducer_group(const Cluster& cluster, const std::optional<std::string>& requested) {
  const auto find_group = [&](const std::string& name) -> const Hosts* {
    const auto found = cluster.groups.find(name);
    return found == cluster.groups.end() ? nullptr : &found->second;
  };
  if (requested) return find_group(*requested);
  const Hosts* const singular = find_group("reducer");
  return singular != nullptr ? singular : find_group("reducers");
}

}  // namespace

SourceResult from_sagemaker(const Environment& env) {
  SLUICE_ASSIGN_OR_RETURN(read, read_cluster(env));
  if (!read)
    return NotConfigured{.reason = std::string("neither ") + kFile + " nor SM_CURRENT_HOST is present"};
  const Cluster& cluster = *read;
  const auto requested = env.variable("SLUICE_SM_GROUP");
  const Hosts* const group = reducer_group(cluster, requested);
  if (group == nullptr) {
    std::string names;
    for (const auto& [name, hosts] : cluster.groups) names += (names.empty() ? "" : ", ") + name;
    names = printable(names);
    const std::string groups = cluster.groups_location + (names.empty() ? " has no groups" : " has " + names);
    if (requested)
      return invalid("SLUICE_SM_GROUP=" + printable(*requested) + ": no such instance group; " + groups);
    return NotConfigured{.reason = "no instance group is named reducer or reducers; " + groups};
  }
  Hosts sorted = *group;
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  DiscoveryResult result;
  for (const auto& [host, location] : sorted)
    SLUICE_RETURN_IF_ERROR(add_endpoint(host, location + ": ", result.reducers));
  if (result.reducers.empty()) return invalid(cluster.groups_location + ": the reducer group has no hosts");

  const auto is_reducer = [&](const std::string& host) {
    return std::ranges::any_of(sorted, [&](const auto& entry) { return entry.first == host; });
  };
  std::vector<std::string> workers;
  for (const auto& [host, location] : cluster.hosts) workers.push_back(host);
  if (workers.empty()) {
    for (const auto& [name, hosts] : cluster.groups) {
      for (const auto& [host, location] : hosts) workers.push_back(host);
    }
  }
  std::erase_if(workers, is_reducer);
  std::ranges::sort(workers, natural_less);
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  result.workers = static_cast<uint32_t>(workers.size());

  const auto own_index = [&](const auto& list, auto name_of) -> std::optional<uint32_t> {
    const auto at = std::ranges::find(list, cluster.own_host, name_of);
    if (at == list.end()) return std::nullopt;
    return static_cast<uint32_t>(at - list.begin());
  };
  if (const auto i = own_index(sorted, [](const auto& entry) { return entry.first; })) {
    result.role = Role::kReducer;
    result.index = *i;
  } else if (const auto w = own_index(workers, [](const std::string& host) { return host; })) {
    result.role = Role::kWorker;
    result.index = *w;
  } else {
    return invalid(cluster.groups_location + ": no host list contains this host, " +
                   config::in_quotes(cluster.own_host));
  }
  if (!cluster.own_group.empty()) result.notes.push_back("instance group " + printable(cluster.own_group));
  return result;
}

}  // namespace sluice::config::discovery
