// Describes an event: "lost its connection to rank 2 (connection reset)". Together with the
// source of the event, the result is a sentence.
#pragma once

#include <string>

#include "cli/blackbox/timeline.h"

namespace sluice::cli {

[[nodiscard]] std::string event_text(const Timeline& timeline, const Timeline::Entry& entry);

// "connection reset", "malformed frame: bad_payload_crc".
[[nodiscard]] std::string reason_text(const RecordedEvent& recorded);

}  // namespace sluice::cli
