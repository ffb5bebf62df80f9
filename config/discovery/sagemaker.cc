// The file is there on every host; the variables only where the training toolkit of the image made them.
#include <algorithm>
#include <map>
#include <utility>

#include "config/discovery/bounded_json.h"
#include "config/discovery/natural_order.h"
#include "config/discovery/sources.h"
#include "config/plain_text.h"

namespace sluice::config::discovery {
namespace {

constexpr const char* kFile = "/opt/ml/input/config/resourceconfig.json";

using Hosts = std::vector<std::pair<std::string, std::string>>;  // name, place

struct Cluster {
  std::string here;        // this host
  std::string group = {};  // and its group, as far as it is said
  std::map<std::string, Hosts> groups = {};
  std::string groups_place;
  Hosts hosts = {};  // all of them
};

Result<std::string> optional_text(const JsonPlace& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto member = object.member(name);
    if (!member) return tl::unexpected(member.error());
    if (*member) return (*member)->text();
  }
  return std::string();
}

Result<Hosts> optional_hosts(const JsonPlace& object, const char* name) {
  auto member = object.member(name);
  if (!member) return tl::unexpected(member.error());
  return *member ? (*member)->texts() : Result<Hosts>(Hosts());
}

Result<void> add_group(const JsonPlace& group, Cluster& to) {
  auto name = optional_text(group, {"instance_group_name"});
  if (!name) return tl::unexpected(name.error());
  if (name->empty()) return group.wrong("`instance_group_name` is missing");
  auto hosts = optional_hosts(group, "hosts");
  if (!hosts) return tl::unexpected(hosts.error());
  to.groups[*name] = std::move(*hosts);
  return {};
}

Result<Cluster> read_resource_config(const JsonPlace& document) {
  Cluster out;
  auto here = optional_text(document, {"current_host"});
  if (!here) return tl::unexpected(here.error());
  if (here->empty()) return document.wrong("`current_host` is missing");
  out.here = std::move(*here);
  auto group = optional_text(document, {"current_group_name", "current_instance_group"});
  if (!group) return tl::unexpected(group.error());
  out.group = std::move(*group);
  auto hosts = optional_hosts(document, "hosts");
  if (!hosts) return tl::unexpected(hosts.error());
  out.hosts = std::move(*hosts);
  out.groups_place = document.place() + "/instance_groups";
  auto groups = document.member("instance_groups");
  if (!groups) return tl::unexpected(groups.error());
  if (!*groups) return out;
  auto elements = (*groups)->elements();
  if (!elements) return tl::unexpected(elements.error());
  for (const JsonPlace& element : *elements) {
    if (auto added = add_group(element, out); !added) return tl::unexpected(added.error());
  }
  return out;
}

Result<Cluster> read_variables(const Surroundings& here, std::string host) {
  Cluster out{.here = std::move(host),
              .group = here.variable("SM_CURRENT_INSTANCE_GROUP").value_or(""),
              .groups_place = "SM_INSTANCE_GROUPS_DICT"};
  if (const auto text = here.variable("SM_HOSTS")) {
    const auto document = JsonPlace::parse("SM_HOSTS", *text);
    if (!document) return tl::unexpected(document.error());
    auto hosts = document->texts();
    if (!hosts) return tl::unexpected(hosts.error());
    out.hosts = std::move(*hosts);
  }
  const auto text = here.variable("SM_INSTANCE_GROUPS_DICT");
  if (!text) return out;
  const auto document = JsonPlace::parse("SM_INSTANCE_GROUPS_DICT", *text);
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

// Nothing: this is not SageMaker.
Result<std::optional<Cluster>> read_cluster(const Surroundings& here) {
  const std::string path = here.variable("SLUICE_SM_RESOURCE_CONFIG").value_or(kFile);
  auto text = here.read_file(path);
  if (!text) return tl::unexpected(text.error());
  std::string origin = path;
  if (!*text) {
    *text = here.variable("SM_RESOURCE_CONFIG");
    origin = "SM_RESOURCE_CONFIG";
  }
  if (*text) {
    const auto document = JsonPlace::parse(origin, **text);
    if (!document) return tl::unexpected(document.error());
    return read_resource_config(*document);
  }
  if (auto host = here.variable("SM_CURRENT_HOST")) return read_variables(here, std::move(*host));
  return std::optional<Cluster>();
}

const Hosts* pick_group(const Cluster& cluster, const std::optional<std::string>& wanted) {
  const auto named = [&](const std::string& name) -> const Hosts* {
    const auto found = cluster.groups.find(name);
    return found == cluster.groups.end() ? nullptr : &found->second;
  };
  if (wanted) return named(*wanted);
  const Hosts* const one = named("reducer");
  return one != nullptr ? one : named("reducers");
}

}  // namespace

Answer from_sagemaker(const Surroundings& here) {
  auto read = read_cluster(here);
  if (!read) return tl::unexpected(read.error());
  if (!*read) return NotHere{.why = std::string("neither ") + kFile + " nor SM_CURRENT_HOST is there"};
  const Cluster& cluster = **read;
  const auto wanted = here.variable("SLUICE_SM_GROUP");
  const Hosts* const picked = pick_group(cluster, wanted);
  if (picked == nullptr) {
    std::string groups;
    for (const auto& [name, hosts] : cluster.groups) groups += (groups.empty() ? "" : ", ") + name;
    groups = plain(groups);
    const std::string there = cluster.groups_place + (groups.empty() ? " names none" : " names " + groups);
    if (wanted)
      return fail(Errc::kInvalidArgument, "SLUICE_SM_GROUP=" + plain(*wanted) + ": no such group, " + there);
    return NotHere{.why = "no instance group is named reducer or reducers: " + there};
  }
  Hosts sorted = *picked;
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return natural_less(a.first, b.first); });
  Found found;
  for (const auto& [host, place] : sorted) {
    if (auto added = add_endpoint(host, place + ": ", found.reducers); !added)
      return tl::unexpected(added.error());
  }
  if (found.reducers.empty())
    return fail(Errc::kInvalidArgument, cluster.groups_place + ": the group of reducers has no hosts");

  const auto is_reducer = [&](const std::string& host) {
    return std::ranges::any_of(sorted, [&](const auto& one) { return one.first == host; });
  };
  std::vector<std::string> workers;
  for (const auto& [host, place] : cluster.hosts) workers.push_back(host);
  if (workers.empty()) {
    for (const auto& [name, hosts] : cluster.groups) {
      for (const auto& [host, place] : hosts) workers.push_back(host);
    }
  }
  std::erase_if(workers, is_reducer);
  std::ranges::sort(workers, natural_less);
  workers.erase(std::unique(workers.begin(), workers.end()), workers.end());
  found.workers = static_cast<uint32_t>(workers.size());

  const auto place_in = [&](const auto& list, auto name_of) -> std::optional<uint32_t> {
    const auto at = std::ranges::find(list, cluster.here, name_of);
    if (at == list.end()) return std::nullopt;
    return static_cast<uint32_t>(at - list.begin());
  };
  if (const auto i = place_in(sorted, [](const auto& one) { return one.first; })) {
    found.role = Role::kReducer;
    found.index = *i;
  } else if (const auto w = place_in(workers, [](const std::string& one) { return one; })) {
    found.role = Role::kWorker;
    found.index = *w;
  } else {
    return fail(Errc::kInvalidArgument,
                cluster.groups_place + ": this host, " + plain(cluster.here) + ", is in no list of hosts");
  }
  if (!cluster.group.empty()) found.notes.push_back("instance group " + plain(cluster.group));
  return found;
}

}  // namespace sluice::config::discovery
