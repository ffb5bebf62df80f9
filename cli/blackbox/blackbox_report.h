// Formats the output of `sluice blackbox`: what happened first, the files, and the events of all of them in
// the order of time.
#pragma once

#include <string>

#include "cli/blackbox/first_event.h"
#include "cli/blackbox/timeline.h"

namespace sluice::cli {

struct BlackboxView {
  Nanos since = 30 * kSecond;  // before the end of the session; 0: everything
  bool all = false;            // also heartbeats, and operations that ended well
};

// Lines of printable ASCII.
[[nodiscard]] std::string blackbox_report(const Timeline& timeline, const FirstEvent& first,
                                          const BlackboxView& view);
// The same for programs, as JSON.
[[nodiscard]] std::string blackbox_json(const Timeline& timeline, const FirstEvent& first,
                                        const BlackboxView& view);

}  // namespace sluice::cli
