#include <algorithm>
#include <utility>

#include "config/discovery/hostlist.h"
#include "config/discovery/sources.h"
#include "config/printable_text.h"
#include "core/parse_number.h"

namespace sluice::config::discovery {
namespace {

using Names = std::vector<std::string>;

Result<uint32_t> parse_count(const std::string& variable, const std::string& text) {
  if (const auto count = parse_number<uint32_t>(text)) return *count;
  return invalid(variable + ": expected a non-negative integer");
}

Result<Names> parse_nodes(const std::string& variable, const std::string& text) {
  auto names = expand_hostlist(text);
  if (!names) return add_context(variable, names.error());
  return std::move(*names);
}

struct Nodes {
  Names reducers;
  Names workers;
  std::string variable;  // the variable that lists the reducers
};

// Reads the components of a heterogeneous job. Slurm calls them HET_GROUP, and PACK_GROUP before 20.02.
Result<std::variant<Nodes, NotConfigured>> nodes_from_group(const Environment& env,
                                                            const std::string& group_text) {
  SLUICE_ASSIGN_OR_RETURN(group, parse_count("SLUICE_SLURM_GROUP", group_text));
  std::string size_variable, list_variable;
  std::optional<std::string> size_text;
  for (const std::string infix : {"HET", "PACK"}) {
    size_variable = "SLURM_" + infix + "_SIZE";
    list_variable = "SLURM_JOB_NODELIST_" + infix + "_GROUP_";
    size_text = env.variable(size_variable);
    if (size_text) break;
  }
  if (!size_text) return NotConfigured{.reason = "SLURM_HET_SIZE is not set: not a heterogeneous job"};
  SLUICE_ASSIGN_OR_RETURN(size, parse_count(size_variable, *size_text));
  constexpr uint32_t kMaxComponents = 1024;  // Slurm's own limit is 128
  if (size > kMaxComponents)
    return invalid(size_variable + ": must be at most " + std::to_string(kMaxComponents));
  if (group >= size) {
    return invalid("SLUICE_SLURM_GROUP=" + printable(group_text) + ": the job has components 0 to " +
                   std::to_string(size - std::min(size, 1u)));
  }
  Nodes out{.reducers = {}, .workers = {}, .variable = list_variable + std::to_string(group)};
  for (uint32_t i = 0; i < size; ++i) {
    const std::string variable = list_variable + std::to_string(i);
    const auto text = env.variable(variable);
    if (!text) return invalid(variable + " is not set, but " + size_variable + " is");
    SLUICE_ASSIGN_OR_RETURN(names, parse_nodes(variable, *text));
    Names& to = i == group ? out.reducers : out.workers;
    to.insert(to.end(), names.begin(), names.end());
  }
  return out;
}

Result<std::variant<Nodes, NotConfigured>> nodes_from_list(const Environment& env, const std::string& text) {
  SLUICE_ASSIGN_OR_RETURN(reducers, parse_nodes("SLUICE_SLURM_NODELIST", text));
  Nodes out{.reducers = std::move(reducers), .workers = {}, .variable = "SLUICE_SLURM_NODELIST"};
  if (const auto job = env.variable("SLURM_JOB_NODELIST")) {
    SLUICE_ASSIGN_OR_RETURN(nodes, parse_nodes("SLURM_JOB_NODELIST", *job));
    out.workers = std::move(nodes);
    Names sorted = out.reducers;
    std::ranges::sort(sorted);
    std::erase_if(out.workers, [&](const std::string& n) { return std::ranges::binary_search(sorted, n); });
  }
  return out;
}

std::optional<uint32_t> index_of(const Names& names, const std::string& name) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) return std::nullopt;
  return static_cast<uint32_t>(at - names.begin());
}

}  // namespace

SourceResult from_slurm(const Environment& env) {
  const auto group = env.variable("SLUICE_SLURM_GROUP");
  const auto list = env.variable("SLUICE_SLURM_NODELIST");
  if (!group && !list)
    return NotConfigured{.reason = "neither SLUICE_SLURM_GROUP nor SLUICE_SLURM_NODELIST is set"};
  SLUICE_ASSIGN_OR_RETURN(read, group ? nodes_from_group(env, *group) : nodes_from_list(env, *list));
  if (auto* not_configured = std::get_if<NotConfigured>(&read)) return std::move(*not_configured);
  const auto& nodes = std::get<Nodes>(read);

  DiscoveryResult result;
  if (nodes.reducers.size() > kMaxEndpoints) {
    return invalid(nodes.variable + ": " + std::to_string(nodes.reducers.size()) +
                   " reducer nodes, the limit is " + std::to_string(kMaxEndpoints));
  }
  for (const std::string& name : nodes.reducers)
    SLUICE_RETURN_IF_ERROR(add_endpoint(name, nodes.variable + ": ", result.reducers));
  result.workers = static_cast<uint32_t>(nodes.workers.size());
  const auto own = env.variable("SLURMD_NODENAME");
  if (!own) {
    result.notes.emplace_back("SLURMD_NODENAME is not set: this process is not a Slurm task");
    return result;
  }
  const auto reducer = index_of(nodes.reducers, *own), worker = index_of(nodes.workers, *own);
  if (reducer && worker) {
    result.notes.push_back("node " + printable(*own) + " is in both components");
  } else if (reducer) {
    result.role = Role::kReducer;
    result.index = reducer;
  } else if (worker) {
    result.role = Role::kWorker;
    result.index = worker;
  }
  return result;
}

}  // namespace sluice::config::discovery
