#include "config/discovery/roles.h"

#include <optional>
#include <utility>

#include "config/printable_text.h"

namespace sluice::config::discovery {
namespace {

Result<uint32_t> entry_count(const JsonNode& cluster, const std::string& name) {
  auto list = cluster.member(name);
  if (!list) return tl::unexpected(list.error());
  if (!*list) return 0u;
  auto entries = (*list)->texts();
  if (!entries) return tl::unexpected(entries.error());
  return static_cast<uint32_t>(entries->size());
}

struct Task {
  std::string type;
  uint32_t index = 0;
  std::optional<JsonNode> index_node = {};
};

Result<std::optional<Task>> read_task(const JsonNode& document) {
  auto task = document.member("task");
  if (!task) return tl::unexpected(task.error());
  if (!*task) return std::optional<Task>();
  auto type = (*task)->member("type");
  if (!type) return tl::unexpected(type.error());
  if (!*type) return (*task)->error("missing member \"type\"");
  auto name = (*type)->text();
  if (!name) return tl::unexpected(name.error());
  Task out{.type = std::move(*name)};
  auto index = (*task)->member("index");
  if (!index) return tl::unexpected(index.error());
  if (!*index) return (*task)->error("missing member \"index\"");
  auto number = (*index)->number();
  if (!number) return tl::unexpected(number.error());
  out.index = *number;
  out.index_node = std::move(*index);
  return out;
}

// The jobs of a hyperparameter search share one log, so the trial is noted.
Result<void> note_trial(const JsonNode& document, std::vector<std::string>& notes) {
  auto task = document.member("task");
  if (!task) return tl::unexpected(task.error());
  if (!*task) return {};
  auto trial = (*task)->member("trial");
  if (!trial) return tl::unexpected(trial.error());
  if (!*trial) return {};
  if (const auto text = (*trial)->text(); text) notes.push_back("trial " + printable(*text));
  return {};
}

}  // namespace

SourceResult read_roles(const JsonNode& document, const RoleNames& names) {
  auto cluster = document.member("cluster");
  if (!cluster) return tl::unexpected(cluster.error());
  if (!*cluster) return NotConfigured{.reason = document.location() + " has no member \"cluster\""};
  auto list = (*cluster)->member(names.reducers);
  if (!list) return tl::unexpected(list.error());
  const std::string no_reducers = (*cluster)->location() + "/" + names.reducers + " is missing or empty";
  if (!*list) return NotConfigured{.reason = no_reducers};
  auto entries = (*list)->texts();
  if (!entries) return tl::unexpected(entries.error());
  if (entries->empty()) return NotConfigured{.reason = no_reducers};

  DiscoveryResult result;
  for (const auto& [text, location] : *entries) {
    if (auto added = add_endpoint(text, location + ": ", result.reducers); !added)
      return tl::unexpected(added.error());
  }
  auto task = read_task(document);
  if (!task) return tl::unexpected(task.error());
  const auto set_role = [&](Role role, uint32_t first_index, uint32_t count) -> Result<void> {
    if ((*task)->index >= count) {
      return (*task)->index_node->error("index " + std::to_string((*task)->index) + " is out of range: " +
                                        (*task)->type + " has " + std::to_string(count) + " entries");
    }
    result.role = role;
    result.index = first_index + (*task)->index;
    return {};
  };
  if (*task && (*task)->type == names.reducers) {
    if (auto set = set_role(Role::kReducer, 0, static_cast<uint32_t>(result.reducers.size())); !set)
      return tl::unexpected(set.error());
  }
  for (const std::string& name : names.workers) {
    const auto count = entry_count(**cluster, name);
    if (!count) return tl::unexpected(count.error());
    if (*task && (*task)->type == name) {
      if (auto set = set_role(Role::kWorker, result.workers, *count); !set)
        return tl::unexpected(set.error());
    }
    result.workers += *count;
  }
  if (*task && result.role == Role::kUnknown)
    result.notes.emplace_back("task is neither a reducer nor a worker");
  if (auto noted = note_trial(document, result.notes); !noted) return tl::unexpected(noted.error());
  return result;
}

}  // namespace sluice::config::discovery
