#include "config/discovery/roles.h"
#include "config/discovery/sources.h"

namespace sluice::config::discovery {

SourceResult from_tf_config(const Environment& env, bool requested) {
  const auto text = env.variable("TF_CONFIG");
  if (!text) return NotConfigured{.reason = "TF_CONFIG is not set"};
  const auto document = JsonNode::parse("TF_CONFIG", *text);
  // Many tools set this variable for other purposes, so errors in it count only when the source is requested.
  if (!document) {
    if (requested) return tl::unexpected(document.error());
    return NotConfigured{.reason = document.error().text};
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
