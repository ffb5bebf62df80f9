// The status of a reducer as JSON, for `sluice status`, the HTTP port and the metrics.
#pragma once

#include <string>

namespace sluice::reducer {

class ControlLoop;

// The keys are documented in docs/guides/operate.md. Control thread only.
[[nodiscard]] std::string make_status_json(const ControlLoop& loop);

}  // namespace sluice::reducer
