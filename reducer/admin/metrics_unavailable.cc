// metrics_text() for a build without prometheus-cpp.
#include "reducer/admin/metrics.h"

namespace sluice::reducer::admin {

Result<std::string> metrics_text(const nlohmann::json& /*status*/,
                                 const std::map<std::string, std::string>& /*build*/,
                                 const HostFacts& /*host*/) {
  return fail(Errc::kUnsupported,
              "this build has no metrics: prometheus-cpp was missing; /status has the same numbers");
}

}  // namespace sluice::reducer::admin
