#include "config/discovery/roles.h"
#include "config/discovery/sources.h"

namespace sluice::config::discovery {

// Pools by the place of their specification in the job: 0 is the chief, 1 are the other workers, 2 the
// reducers, 3 evaluators. A reducer listens at the port of its own entry.
Answer from_cluster_spec(const Surroundings& here) {
  const auto text = here.variable("CLUSTER_SPEC");
  if (!text) return NotHere{.why = "CLUSTER_SPEC is not set"};
  const auto document = JsonPlace::parse("CLUSTER_SPEC", *text);
  if (!document) return tl::unexpected(document.error());
  return read_roles(*document, {.reducers = "workerpool2", .workers = {"workerpool0", "workerpool1"}});
}

}  // namespace sluice::config::discovery
