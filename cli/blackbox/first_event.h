// Finds what happened first: the earliest event in the merged black boxes that explains why a session ended,
// and says it in one sentence.
//
// The rules: an event counts if it belongs to the session, or to a process of it, and happened before the
// first report of the end. A loss that was repaired before the end (the connection resumed, the view changed)
// explains nothing. A late or silent rank explains the end only if an operation timed out, or if its loss
// ended the session: training jobs wait for late ranks without harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/blackbox/timeline.h"

namespace sluice::cli {

struct FirstEvent {
  std::string sentence;     // "first: reducer ... before the session ended"
  uint64_t session = 0;     // 0: the files have none
  bool has_failed = false;  // the session ended with an error
  Nanos zero = 0;           // the first report of the end; without one, when the last file was written
  const Timeline::Entry* entry = nullptr;  // null: nothing went wrong
};

// `session`: the one to explain; nothing: the one that concerns most files, and of those the last that ended.
[[nodiscard]] FirstEvent find_first_event(const Timeline& timeline,
                                          const std::optional<uint64_t>& session = std::nullopt);

}  // namespace sluice::cli
