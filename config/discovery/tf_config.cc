#include "config/discovery/roles.h"
#include "config/discovery/sources.h"

namespace sluice::config::discovery {

Answer from_tf_config(const Surroundings& here, bool asked_for) {
  const auto text = here.variable("TF_CONFIG");
  if (!text) return NotHere{.why = "TF_CONFIG is not set"};
  const auto document = JsonPlace::parse("TF_CONFIG", *text);
  // Many write this variable, and most of them for other ends: only who asks for it hears of its mistakes.
  if (!document) {
    if (asked_for) return tl::unexpected(document.error());
    return NotHere{.why = document.error().text};
  }
  if (!asked_for) {
    const auto environment = document->member("environment");
    const auto name = environment && *environment ? (*environment)->text() : Result<std::string>("");
    if (!name || *name != "cloud") {
      return NotHere{.why =
                         "TF_CONFIG:/environment is not \"cloud\", so its ps may be real parameter servers "
                         "(SLUICE_DISCOVERY=tf-config takes them all the same)"};
    }
  }
  return read_roles(*document, {.reducers = "ps", .workers = {"chief", "master", "worker"}});
}

}  // namespace sluice::config::discovery
