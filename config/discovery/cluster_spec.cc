#include "config/discovery/roles.h"
#include "config/discovery/sources.h"

namespace sluice::config::discovery {

// Vertex AI numbers the pools by their position in the job specification: 0 is the chief, 1 the other
// workers, 2 the reducers, 3 the evaluators. A reducer listens on the port of its own entry.
SourceResult from_cluster_spec(const Environment& env) {
  const auto text = env.variable("CLUSTER_SPEC");
  if (!text) return NotConfigured{.reason = "CLUSTER_SPEC is not set"};
  const auto document = JsonNode::parse("CLUSTER_SPEC", *text);
  if (!document) return tl::unexpected(document.error());
  return read_roles(*document, {.reducers = "workerpool2", .workers = {"workerpool0", "workerpool1"}});
}

}  // namespace sluice::config::discovery
