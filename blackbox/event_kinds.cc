#include "blackbox/event_kinds.h"

#include <algorithm>

namespace sluice::blackbox {
namespace {

using K = EventKind;
using P = PeerKind;

constexpr EventKindInfo kEventKinds[] = {
    {K::kStarted, "started", P::kNone, "", ""},  // text: version
    {K::kSignal, "signal", P::kNone, "number", ""},
    {K::kStalled, "process_stalled", P::kNone, "ms", ""},
    {K::kReducerListening, "reducer_listening", P::kNone, "lanes", ""},  // text: address
    {K::kJoining, "session_joining", P::kNone, "ranks", "reducers"},
    // peer: the id that the ranks have for this reducer, which is not always its own
    {K::kOpened, "session_opened", P::kReducer, "ranks", "bytes"},
    {K::kReducerJoined, "reducer_joined", P::kReducer, "lanes", ""},  // text: its name
    {K::kReducerRejected, "reducer_rejected", P::kReducer, "", ""},
    {K::kRankJoined, "rank_joined", P::kRank, "", ""},  // text: address
    {K::kCommitted, "session_started", P::kNone, "ranks", "lanes"},
    {K::kJoinFailed, "join_failed", P::kNone, "", ""},
    {K::kRankLeft, "rank_left", P::kRank, "", ""},
    {K::kAborted, "session_aborted", P::kNone, "", ""},
    {K::kEnded, "session_ended", P::kRank, "", ""},  // peer: the rank at fault
    {K::kMoved, "session_moved", P::kNone, "", ""},
    {K::kConnectionRefused, "connection_refused", P::kRank, "not_recorded", ""},
    {K::kConnectionLost, "connection_lost", P::kOpposite, "connection", ""},
    {K::kConnectionResumed, "connection_resumed", P::kOpposite, "connection", ""},
    {K::kPeerSilent, "peer_silent", P::kOpposite, "ms", ""},
    {K::kPeerHeard, "peer_heard", P::kOpposite, "", ""},
    {K::kRankExcluded, "rank_excluded", P::kRank, "", ""},
    {K::kReducerLost, "reducer_lost", P::kReducer, "", ""},
    {K::kReducerRemoved, "reducer_removed", P::kReducer, "", ""},
    {K::kReducerDraining, "reducer_draining", P::kReducer, "sessions", ""},
    {K::kReducerStopping, "reducer_stopping", P::kNone, "", ""},
    {K::kHeartbeatSent, "heartbeat_sent", P::kOpposite, "count", ""},
    {K::kHeartbeatReceived, "heartbeat_received", P::kOpposite, "count", ""},
    {K::kViewProposed, "view_proposed", P::kNone, "view", ""},
    {K::kViewCommitted, "view_committed", P::kNone, "view", "first_chunk"},
    {K::kViewChanged, "view_changed", P::kNone, "view", "reducers"},
    {K::kStallEnded, "stall_ended", P::kNone, "ms", ""},
    {K::kLinkRateChanged, "link_rate_changed", P::kNone, "bits_per_second", "before"},
    {K::kRankLate, "rank_late", P::kRank, "ms", "late_ranks"},
    {K::kRankOnTime, "rank_on_time", P::kRank, "", ""},
    {K::kOperationBegan, "operation_began", P::kCollective, "operation", "bytes"},
    {K::kOperationEnded, "operation_ended", P::kCollective, "operation", "bytes"},
};

}  // namespace

std::span<const EventKindInfo> event_kinds() noexcept {
  return kEventKinds;
}

const EventKindInfo* find_event_kind(EventKind kind) noexcept {
  const auto* const found = std::ranges::find(kEventKinds, kind, &EventKindInfo::kind);
  return found == std::end(kEventKinds) ? nullptr : found;
}

const EventKindInfo* find_event_kind(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kEventKinds, name, &EventKindInfo::name);
  return found == std::end(kEventKinds) ? nullptr : found;
}

PeerKind peer_kind_of(const EventKindInfo& info, Role role) noexcept {
  if (info.peer != PeerKind::kOpposite) return info.peer;
  return role == Role::kReducer ? PeerKind::kRank : PeerKind::kReducer;
}

}  // namespace sluice::blackbox
