// CLUSTER_SPEC and TF_CONFIG share a format: lists of "host:port" by role, and a task that names this
// process's entry.
#include <optional>
#include <utility>

#include "config/discovery/json_node.h"
#include "config/discovery/sources.h"
#include "config/printable_text.h"

namespace sluice::config::discovery {
namespace {

struct RoleNames {
  const char* reducers;              // key of the reducer list in `cluster`
  std::vector<std::string> workers;  // keys of the worker lists, in the order of worker indexes
};

struct Task {
  std::string type;
  uint32_t index = 0;
  JsonNode index_node;
};

Result<std::optional<Task>> read_task(const JsonNode& document) {
  SLUICE_ASSIGN_OR_RETURN(task, document.member("task"));
  if (!task) return std::optional<Task>();
  SLUICE_ASSIGN_OR_RETURN(type, task->required_member("type").and_then(&JsonNode::text));
  SLUICE_ASSIGN_OR_RETURN(index_node, task->required_member("index"));
  SLUICE_ASSIGN_OR_RETURN(index, index_node.number());
  return Task{.type = std::move(type), .index = index, .index_node = std::move(index_node)};
}

// The jobs of a hyperparameter search share one log, so the trial is noted.
Result<void> note_trial(const JsonNode& document, std::vector<std::string>& notes) {
  SLUICE_ASSIGN_OR_RETURN(task, document.member("task"));
  if (!task) return {};
  SLUICE_ASSIGN_OR_RETURN(trial, task->member("trial"));
  if (!trial) return {};
  if (const auto text = trial->text()) notes.push_back("trial " + printable(*text));
  return {};
}

// Returns the reducers of the document and this process's role. Returns NotConfigured when the reducer list
// is missing or empty. Without a `task` member the role is unknown.
SourceResult read_roles(const JsonNode& document, const RoleNames& names) {
  SLUICE_ASSIGN_OR_RETURN(cluster, document.member("cluster"));
  if (!cluster) return NotConfigured{.reason = document.location() + " has no member \"cluster\""};
  SLUICE_ASSIGN_OR_RETURN(entries, cluster->member_texts(names.reducers));
  if (entries.empty())
    return NotConfigured{.reason = cluster->location() + "/" + names.reducers + " is missing or empty"};

  DiscoveryResult result;
  for (const auto& [text, location] : entries)
    SLUICE_RETURN_IF_ERROR(add_endpoint(text, location + ": ", result.reducers));
  SLUICE_ASSIGN_OR_RETURN(task, read_task(document));
  const auto set_role = [&](Role role, uint32_t first_index, uint32_t count) -> Result<void> {
    if (task->index >= count) {
      return task->index_node.error("index " + std::to_string(task->index) + " is out of range: " +
                                    task->type + " has " + std::to_string(count) + " entries");
    }
    result.role = role;
    result.index = first_index + task->index;
    return {};
  };
  if (task && task->type == names.reducers)
    SLUICE_RETURN_IF_ERROR(set_role(Role::kReducer, 0, static_cast<uint32_t>(result.reducers.size())));
  for (const std::string& name : names.workers) {
    SLUICE_ASSIGN_OR_RETURN(list, cluster->member_texts(name));
    const auto count = static_cast<uint32_t>(list.size());
    if (task && task->type == name) SLUICE_RETURN_IF_ERROR(set_role(Role::kWorker, result.workers, count));
    result.workers += count;
  }
  if (task && result.role == Role::kUnknown)
    result.notes.emplace_back("task is neither a reducer nor a worker");
  SLUICE_RETURN_IF_ERROR(note_trial(document, result.notes));
  return result;
}

}  // namespace

// Vertex AI numbers the pools by their position in the job specification: 0 is the chief, 1 the other
// workers, 2 the reducers, 3 the evaluators. A reducer listens on the port of its own entry.
SourceResult from_cluster_spec(const Environment& env) {
  const auto text = env.variable("CLUSTER_SPEC");
  if (!text) return NotConfigured{.reason = "CLUSTER_SPEC is not set"};
  SLUICE_ASSIGN_OR_RETURN(document, JsonNode::parse("CLUSTER_SPEC", *text));
  return read_roles(document, {.reducers = "workerpool2", .workers = {"workerpool0", "workerpool1"}});
}

SourceResult from_tf_config(const Environment& env, bool requested) {
  const auto text = env.variable("TF_CONFIG");
  if (!text) return NotConfigured{.reason = "TF_CONFIG is not set"};
  const auto document = JsonNode::parse("TF_CONFIG", *text);
  // Many tools set this variable for other purposes, so errors in it count only when the source is requested.
  if (!document) {
    if (requested) return tl::unexpected(document.error());
    return NotConfigured{.reason = document.error().text};
  }
  if (!requested && env.variable("SM_CURRENT_HOST")) {
    return NotConfigured{.reason =
                             "TF_CONFIG is SageMaker's, so ps are parameter servers of TensorFlow "
                             "(SLUICE_DISCOVERY=tf-config uses them as reducers)"};
  }
  if (!requested) {
    const auto environment = document->member("environment");
    const auto name = environment && *environment ? (*environment)->text() : Result<std::string>("");
    if (!name || *name != "cloud") {
      return NotConfigured{.reason =
                               "TF_CONFIG:/environment is not \"cloud\", so ps may be real parameter servers "
                               "(SLUICE_DISCOVERY=tf-config uses them as reducers)"};
    }
  }
  return read_roles(*document, {.reducers = "ps", .workers = {"chief", "master", "worker"}});
}

}  // namespace sluice::config::discovery
