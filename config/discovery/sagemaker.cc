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

using Hosts = std::vector<std::pair<std::string, std::string>>;  // name, location in the document

struct Cluster {
  std::string own_host;
  std::string own_group = {};  // empty: unknown
  std::map<std::string, Hosts> groups = {};
  std::string groups_location;
  Hosts hosts = {};  // of all groups
};

Result<std::string> optional_text(const JsonNode& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto member = object.member(name);
    if (!member) return tl::unexpected(member.error());
    if (*member) return (*member)->text();
  }
  return std::string();
}

Result<Hosts> optional_hosts(const JsonNode& object, const char* name) {
  auto member = object.member(name);
  if (!member) return tl::unexpected(member.error());
  return *member ? (*member)->texts() : Result<Hosts>(Hosts());
}

Result<void> add_group(const JsonNode& group, Cluster& to) {
  auto name = optional_text(group, {"instance_group_name"});
  if (!name) return tl::unexpected(name.error());
  if (name->empty()) return group.error("missing member \"instance_group_name\"");
  auto hosts = optional_hosts(group, "hosts");
  if (!hosts) return tl::unexpected(hosts.error());
  to.groups[*name] = std::move(*hosts);
  return {};
}

Result<Cluster> read_resource_config(const JsonNode& document) {
  Cluster out;
  auto host = optional_text(document, {"current_host"});
  if (!host) return tl::unexpected(host.error());
  if (host->empty()) return document.error("missing member \"current_host\"");
  out.own_host = std::move(*host);
  auto group = optional_text(document, {"current_group_name", "current_instance_group"});
  if (!group) return tl::unexpected(group.error());
  out.own_group = std::move(*group);
  auto hosts = optional_hosts(document, "hosts");
  if (!hosts) return tl::unexpected(hosts.error());
  out.hosts = std::move(*hosts);
  out.groups_location = document.location() + "/instance_groups";
  auto groups = document.member("instance_groups");
  if (!groups) return tl::unexpected(groups.error());
  if (!*groups) return out;
  auto elements = (*groups)->elements();
  if (!elements) return tl::unexpected(elements.error());
  for (const JsonNode& element : *elements) {
    if (auto added = add_group(element, out); !added) return tl::unexpected(added.error());
  }
  return out;
}

Result<Cluster> read_variables(const Environment& env, std::string host) {
  Cluster out{.own_host = std::move(host),
              .own_group = env.variable("SM_CURRENT_INSTANCE_GROUP").value_or(""),
              .groups_location = "SM_INSTANCE_GROUPS_DICT"};
  if (const auto text = env.variable("SM_HOSTS")) {
    const auto document = JsonNode::parse("SM_HOSTS", *text);
    if (!document) return tl::unexpected(document.error());
    auto hosts = document->texts();
    if (!hosts) return tl::unexpected(hosts.error());
    out.hosts = std::move(*hosts);
  }
  const auto text = env.variable("SM_INSTANCE_GROUPS_DICT");
  if (!text) return out;
  const auto document = JsonNode::parse("SM_INSTANCE_GROUPS_DICT", *text);
  if (!document) return tl::unexpected(document.error());
  auto groups = document->members();
  if (!groups) return tl::unexpected(groups.error());
  for (const auto& [name, group] : *groups) {
    auto hosts = optional_hosts(group, "hosts");
    if (!hosts) return tl::unexpected(hosts.error());
    out.groups[name] = std::move(*hosts);
  }
  return out;
}

// Returns nothing when this host is not a SageMaker host.
Result<std::optional<Cluster>> read_cluster(const Environment& env) {
  const std::string path = env.variable("SLUICE_SM_RESOURCE_CONFIG").value_or(kFile);
  auto text = env.read_file(path);
  if (!text) return tl::unexpected(text.error());
  std::string origin = path;
  if (!*text) {
    *text = env.variable("SM_RESOURCE_CONFIG");
    origin = "SM_RESOURCE_CONFIG";
  }
  if (*text) {
    const auto document = JsonNode::parse(origin, **text);
    if (!document) return tl::unexpected(document.error());
    return read_resource_config(*document);
  }
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
  auto read = read_cluster(env);
  if (!read) return tl::unexpected(read.error());
  if (!*read)
    return NotConfigured{.reason = std::string("neither ") + kFile + " nor SM_CURRENT_HOST is present"};
  const Cluster& cluster = **read;
  const auto requested = env.variable("SLUICE_SM_GROUP");
  const Hosts* const group = reducer_group(cluster, requested);
  if (group == nullptr) {
    std::string names;
    for (const auto& [name, hosts] : cluster.groups) names += (names.empty() ? "" : ", ") + name;
    names = printable(names);
    const std::string groups = cluster.groups_location + (names.empty() ? " has no groups" : " has " + names);
    if (requested)
      return fail(Errc::kInvalidArgument,
                  "SLUICE_SM_GROUP=" + printable(*requested) + ": no such instance group; " + groups);
    return NotConfigured{.reason = "no instance group is named reducer or reducers; " + groups};
  }
  Hosts sorted = *group;
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  DiscoveryResult result;
  for (const auto& [host, location] : sorted) {
    if (auto added = add_endpoint(host, location + ": ", result.reducers); !added)
      return tl::unexpected(added.error());
  }
  if (result.reducers.empty())
    return fail(Errc::kInvalidArgument, cluster.groups_location + ": the reducer group has no hosts");

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
    return fail(Errc::kInvalidArgument, cluster.groups_location + ": no host list contains this host, " +
                                            config::quoted(cluster.own_host));
  }
  if (!cluster.own_group.empty()) result.notes.push_back("instance group " + printable(cluster.own_group));
  return result;
}

}  // namespace sluice::config::discovery
