// What the network does to the ranks' lane connections, for heartbeats, the status and the log
// (transport/path_monitor.h).
#include <algorithm>
#include <string>

#include "reducer/control/control_loop.h"
#include "reducer/control/session/session.h"

namespace sluice::reducer {
namespace {

// What a rank that sends nonsense can add to the counters with one heartbeat.
constexpr uint64_t kMostNewPackets = UINT32_MAX;

// Counts never fall, so that a repeated or older heartbeat adds nothing.
uint64_t raise(uint64_t& known, uint64_t reported) noexcept {
  const uint64_t more = reported > known ? std::min(reported - known, kMostNewPackets) : 0;
  known += more;
  return more;
}

}  // namespace

void Session::add_reported_path(uint32_t rank, const wire::Heartbeat& beat) noexcept {
  transport::PathReport& path = ranks_[rank].reported_path;
  loop_.counters().packets_in += raise(path.packets, beat.packets.value_or(0));
  loop_.counters().lost_packets_in += raise(path.lost_packets, beat.lost_packets.value_or(0));
  path.stalled = Nanos{beat.stalled_ms.value_or(0)} * kMillisecond;
}

transport::PathReport Session::sent_path(uint32_t rank) const noexcept {
  transport::PathReport sent;
  for (const auto& lane : lanes_) sent += lane->path(rank, loop_.now());
  return sent;
}

transport::PathReport Session::path_of(uint32_t rank) const noexcept {
  transport::PathReport path = sent_path(rank);
  return path += ranks_[rank].reported_path;
}

void Session::check_paths(Nanos now) {
  transport::PathReport total;
  uint32_t most_lost = 0, stalled = 0;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const transport::PathReport path = path_of(rank);
    total += path;
    if (path.lost_packets > path_of(most_lost).lost_packets) most_lost = rank;
    if (path.stalled > path_of(stalled).stalled) stalled = rank;
  }
  if (const auto text = path_watch_.add_losses(total, now))
    log_warning(": " + *text + ", most between this reducer and " + name(most_lost));
  // While the rank's heartbeats arrive, its host is alive: only what fills packets does not get through.
  if (now - ranks_[stalled].last_heard > 2 * loop_.options().heartbeat) return;
  if (!path_watch_.is_new_stall(total.stalled, now)) return;
  const bool sends = ranks_[stalled].reported_path.stalled >= total.stalled;
  const std::string seconds = std::to_string(total.stalled / kSecond) + " s";
  log_warning(": " +
              (sends ? name(stalled) + " sends data that does not arrive here, for " + seconds
                     : "no byte acknowledged by " + name(stalled) + " for " + seconds) +
              ", but its heartbeats arrive: check the MTU of the path");
}

}  // namespace sluice::reducer
