// Describes each kind of event: its name in files, and what its fields mean. Writer and reader of files use
// this table.
#pragma once

#include <span>
#include <string_view>

#include "blackbox/event.h"

namespace sluice::blackbox {

// What Event::peer is.
enum class PeerKind : uint8_t {
  kNone,
  kOpposite,  // of a rank's event: a reducer; of a reducer's event: a rank
  kRank,
  kReducer,
  kCollective,  // the number of a collective (wire::Kind)
};

struct EventKindInfo {
  EventKind kind;
  std::string_view name;
  PeerKind peer;
  std::string_view a;  // the name of the field; empty: not used
  std::string_view b;
};

[[nodiscard]] std::span<const EventKindInfo> event_kinds() noexcept;

// Null for a kind that this build does not know.
[[nodiscard]] const EventKindInfo* find_event_kind(EventKind kind) noexcept;
[[nodiscard]] const EventKindInfo* find_event_kind(std::string_view name) noexcept;

// The kind of the peer of an event with this role; never kOpposite.
[[nodiscard]] PeerKind peer_kind_of(const EventKindInfo& info, Role role) noexcept;

}  // namespace sluice::blackbox
