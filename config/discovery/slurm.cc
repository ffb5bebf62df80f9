#include <algorithm>
#include <charconv>
#include <utility>

#include "config/discovery/hostlist.h"
#include "config/discovery/sources.h"
#include "config/plain_text.h"

namespace sluice::config::discovery {
namespace {

using Names = std::vector<std::string>;

Result<uint32_t> number_in(const std::string& variable, const std::string& text) {
  uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size())
    return fail(Errc::kInvalidArgument, variable + ": a whole number from 0 on is wanted");
  return n;
}

Result<Names> nodes_in(const std::string& variable, const std::string& text) {
  auto names = expand_hostlist(text);
  if (!names) return fail(names.error().code, variable + ": " + names.error().text);
  return std::move(*names);
}

struct Nodes {
  Names reducers;
  Names workers;
  std::string variable;  // which named the reducers
};

// The components of a heterogeneous job: Slurm calls them HET_GROUP, before 20.02 PACK_GROUP.
Result<std::variant<Nodes, NotHere>> of_group(const Surroundings& here, const std::string& group_text) {
  const auto group = number_in("SLUICE_SLURM_GROUP", group_text);
  if (!group) return tl::unexpected(group.error());
  std::string size_variable, list_variable;
  std::optional<std::string> size_text;
  for (const std::string word : {"HET", "PACK"}) {
    size_variable = "SLURM_" + word + "_SIZE";
    list_variable = "SLURM_JOB_NODELIST_" + word + "_GROUP_";
    size_text = here.variable(size_variable);
    if (size_text) break;
  }
  if (!size_text) return NotHere{.why = "SLURM_HET_SIZE is not set: no heterogeneous job"};
  const auto size = number_in(size_variable, *size_text);
  if (!size) return tl::unexpected(size.error());
  constexpr uint32_t kMostComponents = 1024;  // Slurm's own limit is 128
  if (*size > kMostComponents)
    return fail(Errc::kInvalidArgument, size_variable + ": more than " + std::to_string(kMostComponents));
  if (*group >= *size) {
    return fail(Errc::kInvalidArgument, "SLUICE_SLURM_GROUP=" + plain(group_text) +
                                            ": the job has components 0 to " +
                                            std::to_string(*size - std::min(*size, 1u)));
  }
  Nodes out{.reducers = {}, .workers = {}, .variable = list_variable + std::to_string(*group)};
  for (uint32_t i = 0; i < *size; ++i) {
    const std::string variable = list_variable + std::to_string(i);
    const auto text = here.variable(variable);
    if (!text) return fail(Errc::kInvalidArgument, variable + " is not set, but " + size_variable + " is");
    auto names = nodes_in(variable, *text);
    if (!names) return tl::unexpected(names.error());
    Names& to = i == *group ? out.reducers : out.workers;
    to.insert(to.end(), names->begin(), names->end());
  }
  return out;
}

Result<std::variant<Nodes, NotHere>> of_list(const Surroundings& here, const std::string& text) {
  auto reducers = nodes_in("SLUICE_SLURM_NODELIST", text);
  if (!reducers) return tl::unexpected(reducers.error());
  Nodes out{.reducers = std::move(*reducers), .workers = {}, .variable = "SLUICE_SLURM_NODELIST"};
  if (const auto job = here.variable("SLURM_JOB_NODELIST")) {
    auto nodes = nodes_in("SLURM_JOB_NODELIST", *job);
    if (!nodes) return tl::unexpected(nodes.error());
    out.workers = std::move(*nodes);
    Names sorted = out.reducers;
    std::ranges::sort(sorted);
    std::erase_if(out.workers, [&](const std::string& n) { return std::ranges::binary_search(sorted, n); });
  }
  return out;
}

std::optional<uint32_t> place_in(const Names& names, const std::string& name) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) return std::nullopt;
  return static_cast<uint32_t>(at - names.begin());
}

}  // namespace

Answer from_slurm(const Surroundings& here) {
  const auto group = here.variable("SLUICE_SLURM_GROUP");
  const auto list = here.variable("SLUICE_SLURM_NODELIST");
  if (!group && !list) return NotHere{.why = "neither SLUICE_SLURM_GROUP nor SLUICE_SLURM_NODELIST is set"};
  auto read = group ? of_group(here, *group) : of_list(here, *list);
  if (!read) return tl::unexpected(read.error());
  if (auto* not_here = std::get_if<NotHere>(&*read)) return std::move(*not_here);
  const auto& nodes = std::get<Nodes>(*read);

  Found found;
  if (nodes.reducers.size() > kMaxEndpoints) {
    return fail(Errc::kInvalidArgument, nodes.variable + ": " + std::to_string(nodes.reducers.size()) +
                                            " nodes, more than " + std::to_string(kMaxEndpoints) +
                                            " reducers");
  }
  for (const std::string& name : nodes.reducers) {
    if (auto added = add_endpoint(name, nodes.variable + ": ", found.reducers); !added)
      return tl::unexpected(added.error());
  }
  found.workers = static_cast<uint32_t>(nodes.workers.size());
  const auto own = here.variable("SLURMD_NODENAME");
  if (!own) {
    found.notes.emplace_back("SLURMD_NODENAME is not set: no task of Slurm's");
    return found;
  }
  const auto reducer = place_in(nodes.reducers, *own), worker = place_in(nodes.workers, *own);
  if (reducer && worker) {
    found.notes.push_back("node " + plain(*own) + " is in both components");
  } else if (reducer) {
    found.role = Role::kReducer;
    found.index = reducer;
  } else if (worker) {
    found.role = Role::kWorker;
    found.index = worker;
  }
  return found;
}

}  // namespace sluice::config::discovery
