#include "blackbox/event_source.h"

#include <algorithm>
#include <cstddef>

#include "core/clock.h"

namespace sluice::blackbox {
namespace {

constinit ProcessRings rings;  // constant-initialized and never destroyed: threads may record at any time

}  // namespace

ProcessRings& process_rings() noexcept {
  return rings;
}

Event EventSource::event(EventKind kind, const EventFields& fields) const noexcept {
  return {.at = fields.at != 0 ? fields.at : monotonic_now(),
          .session = session_,
          .source = source_,
          .peer = fields.peer,
          .a = fields.a,
          .b = fields.b,
          .kind = kind,
          .code = fields.code,
          .role = role_};
}

void EventSource::record(EventKind kind, const EventFields& fields, std::string_view text) const noexcept {
  TextEvent record;
  record.event = event(kind, fields);
  const size_t length = std::min(text.size(), record.text.size() - 1);
  std::copy_n(text.begin(), length, record.text.begin());
  // Ends the text and fills its last word.
  const size_t end = round_up(length + 1, sizeof(uint64_t));
  std::fill(record.text.begin() + static_cast<ptrdiff_t>(length),
            record.text.begin() + static_cast<ptrdiff_t>(end), '\0');
  rings.events.add(record, offsetof(TextEvent, text) + end);
}

void EventSource::record_frequent(EventKind kind, const EventFields& fields) const noexcept {
  rings.frequent.add(event(kind, fields));
}

}  // namespace sluice::blackbox
