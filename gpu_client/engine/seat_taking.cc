#include "gpu_client/engine/seat_taking.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu_client/engine/lane_terms.h"
#include "gpu_client/engine/session_log.h"

namespace sluice::engine {
namespace {

// A reducer's word on how often to speak, within reason.
constexpr uint32_t kMinHeartbeatMs = 10;
constexpr uint32_t kMaxHeartbeatMs = 3'600'000;

// Where the process was reached, in numbers: opening a connection to it again then waits for no resolver, and
// does not end up with another process of the same name. An IPv6 address that is valid on one link only reads
// without its link, so it stays as the user wrote it.
config::Endpoint reached_at(const transport::tcp::Socket& socket, const config::Endpoint& address) {
  auto reached = config::parse_endpoints(transport::tcp::peer_name(socket.fd()));
  if (!reached || reached->size() != 1 || reached->front().host.starts_with("fe80:")) return address;
  reached->front().weight = address.weight;
  reached->front().name = address.name.empty() ? address.host : address.name;
  return reached->front();
}

}  // namespace

Result<void> check_offer(const Greeting& g, uint32_t slot_bytes) {
  if (g.welcome.lanes == 0 || g.welcome.lanes > wire::kMaxLanes) {
    return fail(Errc::kBadField, g.name + ": offers " + std::to_string(g.welcome.lanes) +
                                     " lane connections, 1.." + std::to_string(wire::kMaxLanes) +
                                     " expected");
  }
  if (g.welcome.max_slot_bytes < wire::kMinSlotBytes) {
    return fail(Errc::kBadField, g.name + ": takes slots of at most " +
                                     std::to_string(g.welcome.max_slot_bytes) + " bytes, at least " +
                                     std::to_string(wire::kMinSlotBytes) + " expected");
  }
  if (slot_bytes > g.welcome.max_slot_bytes) {
    return fail(Errc::kMemoryLimit, g.name + ": takes slots of at most " +
                                        std::to_string(g.welcome.max_slot_bytes) + " bytes, " +
                                        std::to_string(slot_bytes) + " asked (slot_bytes)");
  }
  return {};
}

uint16_t lanes_of(uint32_t asked, uint16_t offered) noexcept {
  return static_cast<uint16_t>(asked == 0 ? offered : std::min<uint32_t>(asked, offered));
}

Result<Seat> take_seat(Greeting& g, const config::Endpoint& address, const Identity& who, wire::Join join,
                       const Until& until) {
  join.mac = proof(g, who, join.view_hash);
  auto joined = ask<wire::Joined>(g, join, until);
  if (!joined) return tl::unexpected(joined.error());
  if (joined->heartbeat_ms == 0 || joined->peer_timeout_ms == 0) {
    return fail(Errc::kBadField, g.name + ": its JOINED sets no heartbeat");
  }
  return Seat{.name = g.name,
              .address = reached_at(g.socket, address),
              .id = g.welcome.reducer,
              .handle = joined->handle,
              .heartbeat_ms = std::clamp(joined->heartbeat_ms, kMinHeartbeatMs, kMaxHeartbeatMs),
              .peer_timeout_ms = std::max(joined->peer_timeout_ms, kMinHeartbeatMs),
              .control = ControlLink(std::move(g.socket), g.name, joined->handle),
              .lanes = {}};
}

void say_transport(const Greeting& g, const Identity& who) {
  if (!who.lanes.rdma || g.no_pair.empty()) return;
  SessionLog(who.session, who.rank)
      .info(g.name + " lane " + std::to_string(g.hello.lane) + " goes over TCP: " + g.no_pair);
}

Error another_process(const Greeting& g) {
  return {Errc::kReducerLost,
          g.name + ": another process answers there now; it was restarted, or stands behind a balancer"};
}

Result<void> attach(Greeting& g, const Identity& who, const AttachTerms& terms, const Until& until) {
  if (g.welcome.reducer != terms.reducer) return tl::unexpected(another_process(g));
  wire::Attach request;
  request.handle = terms.handle;
  request.view_hash = terms.view_hash;
  request.mac = proof(g, who, terms.view_hash);
  auto attached = ask<wire::Attached>(g, request, until);
  if (!attached) return tl::unexpected(attached.error());
  if (attached->slots != terms.slots) {
    return fail(Errc::kMismatch, g.name + ": grants " + std::to_string(attached->slots) +
                                     " slots on a connection, " + std::to_string(terms.slots) +
                                     " follow from the view");
  }
  return g.hello.purpose == wire::Purpose::kLane ? settle_transport(g, who.lanes, until) : Result<void>();
}

Result<Seat> join_newcomer(const NewcomerTerms& terms, const Identity& who, const Until& until) {
  const std::string name = name_of(terms.address);
  const wire::View& first = *terms.first;
  if (first.reducers.size() >= wire::kMaxReducers)
    return fail(Errc::kTooMany, name + ": the session has as many reducers as a JOIN can name");
  const auto open = [&](wire::Purpose purpose, uint32_t lane) -> Result<Greeting> {
    auto socket = connect_once(terms.address, who, until);
    if (!socket) return add_context(name, socket.error());
    auto g = introduce(std::move(*socket), terms.address, name, who, purpose, lane, terms.incarnation, until);
    if (g && g->welcome.reducer != terms.reducer) return tl::unexpected(another_process(*g));
    return g;
  };
  auto g = open(wire::Purpose::kControl, 0);
  if (!g) return tl::unexpected(g.error());
  if (auto checked = check_offer(*g, first.slot_bytes); !checked) return tl::unexpected(checked.error());
  if ((g->welcome.features & wire::kFeaturesSurvive) != wire::kFeaturesSurvive)
    return fail(Errc::kUnsupported, name + ": takes part in no session that survives losses");

  wire::Join join;
  join.view_hash = wire::view_hash(first);
  join.window_bytes = first.window_bytes;
  join.slot_bytes = first.slot_bytes;
  join.lanes = lanes_of(terms.lanes, g->welcome.lanes);
  join.reducer_index = static_cast<uint16_t>(first.reducers.size());
  join.join_timeout_ms = static_cast<uint32_t>(terms.join_timeout / kMillisecond);
  for (const wire::ViewReducer& r : first.reducers) join.reducers.push_back(r.id);
  join.reducers.push_back(terms.reducer);
  auto seat = take_seat(*g, terms.address, who, join, until);
  if (!seat) return seat;

  seat->slots = wire::slots_per_lane(first.window_bytes, first.slot_bytes, join.lanes);
  const AttachTerms attach_terms{
      .reducer = terms.reducer, .handle = seat->handle, .view_hash = join.view_hash, .slots = seat->slots};
  for (uint32_t lane = 0; lane < join.lanes; ++lane) {
    auto greeting = open(wire::Purpose::kLane, lane);
    if (!greeting) return tl::unexpected(greeting.error());
    if (auto done = attach(*greeting, who, attach_terms, until); !done) return tl::unexpected(done.error());
    say_transport(*greeting, who);
    seat->lanes.push_back(std::move(greeting->socket));
  }
  return seat;
}

}  // namespace sluice::engine
