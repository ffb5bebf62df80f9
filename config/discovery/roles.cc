#include "config/discovery/roles.h"

#include <optional>
#include <utility>

#include "config/plain_text.h"

namespace sluice::config::discovery {
namespace {

Result<uint32_t> count_of(const JsonPlace& cluster, const std::string& name) {
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
  std::optional<JsonPlace> index_place = {};
};

Result<std::optional<Task>> read_task(const JsonPlace& document) {
  auto task = document.member("task");
  if (!task) return tl::unexpected(task.error());
  if (!*task) return std::optional<Task>();
  auto type = (*task)->member("type");
  if (!type) return tl::unexpected(type.error());
  if (!*type) return (*task)->wrong("`type` is missing");
  auto name = (*type)->text();
  if (!name) return tl::unexpected(name.error());
  Task out{.type = std::move(*name)};
  auto index = (*task)->member("index");
  if (!index) return tl::unexpected(index.error());
  if (!*index) return (*task)->wrong("`index` is missing");
  auto number = (*index)->number();
  if (!number) return tl::unexpected(number.error());
  out.index = *number;
  out.index_place = std::move(*index);
  return out;
}

// A pool's jobs may be trials of one search, which share nothing but a log.
Result<void> note_trial(const JsonPlace& document, std::vector<std::string>& notes) {
  auto task = document.member("task");
  if (!task) return tl::unexpected(task.error());
  if (!*task) return {};
  auto trial = (*task)->member("trial");
  if (!trial) return tl::unexpected(trial.error());
  if (!*trial) return {};
  if (const auto text = (*trial)->text(); text) notes.push_back("trial " + plain(*text));
  return {};
}

}  // namespace

Answer read_roles(const JsonPlace& document, const RoleNames& names) {
  auto cluster = document.member("cluster");
  if (!cluster) return tl::unexpected(cluster.error());
  if (!*cluster) return NotHere{.why = document.place() + " has no cluster"};
  auto list = (*cluster)->member(names.reducers);
  if (!list) return tl::unexpected(list.error());
  const std::string none = (*cluster)->place() + "/" + names.reducers + " names nobody";
  if (!*list) return NotHere{.why = none};
  auto entries = (*list)->texts();
  if (!entries) return tl::unexpected(entries.error());
  if (entries->empty()) return NotHere{.why = none};

  Found found;
  for (const auto& [text, place] : *entries) {
    if (auto added = add_endpoint(text, place + ": ", found.reducers); !added)
      return tl::unexpected(added.error());
  }
  auto task = read_task(document);
  if (!task) return tl::unexpected(task.error());
  const auto take = [&](Role role, uint32_t before, uint32_t count) -> Result<void> {
    if ((*task)->index >= count) {
      return (*task)->index_place->wrong("number " + std::to_string((*task)->index) + " of the " +
                                         std::to_string(count) + " of " + (*task)->type);
    }
    found.role = role;
    found.index = before + (*task)->index;
    return {};
  };
  if (*task && (*task)->type == names.reducers) {
    if (auto is = take(Role::kReducer, 0, static_cast<uint32_t>(found.reducers.size())); !is)
      return tl::unexpected(is.error());
  }
  for (const std::string& name : names.workers) {
    const auto count = count_of(**cluster, name);
    if (!count) return tl::unexpected(count.error());
    if (*task && (*task)->type == name) {
      if (auto is = take(Role::kWorker, found.workers, *count); !is) return tl::unexpected(is.error());
    }
    found.workers += *count;
  }
  if (*task && found.role == Role::kUnknown)
    found.notes.emplace_back("the task is neither reducer nor worker here");
  if (auto noted = note_trial(document, found.notes); !noted) return tl::unexpected(noted.error());
  return found;
}

}  // namespace sluice::config::discovery
