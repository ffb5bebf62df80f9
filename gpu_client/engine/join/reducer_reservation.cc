#include "gpu_client/engine/join/reducer_reservation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gpu_client/engine/base/session_log.h"
#include "gpu_client/engine/join/transport_negotiation.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "wire/view.h"

namespace sluice::engine {
namespace {

// Bounds for the heartbeat interval that a reducer sends in JOINED.
constexpr uint32_t kMinHeartbeatMs = 10;
constexpr uint32_t kMaxHeartbeatMs = 3'600'000;

// The numeric address at which the reducer was reached. A later connection then needs no name resolution
// and cannot reach another process with the same name. A link-local IPv6 address is printed without its
// interface, so the configured address is used instead.
config::Endpoint resolved_address(const transport::tcp::Socket& socket, const config::Endpoint& address) {
  auto reached = config::parse_endpoints(transport::tcp::peer_name(socket.fd()));
  if (!reached || reached->size() != 1 || reached->front().host.starts_with("fe80:")) return address;
  reached->front().weight = address.weight;
  reached->front().name = address.name.empty() ? address.host : address.name;
  return reached->front();
}

}  // namespace

Result<void> check_capacity(const Handshake& g, uint32_t slot_bytes) {
  if (g.welcome.lanes == 0 || g.welcome.lanes > wire::kMaxLanes) {
    return fail(Errc::kBadField, g.name + ": offers " + std::to_string(g.welcome.lanes) +
                                     " lane connections, expected 1.." + std::to_string(wire::kMaxLanes));
  }
  if (g.welcome.max_slot_bytes < wire::kMinSlotBytes) {
    return fail(Errc::kBadField, g.name + ": maximum slot size is " +
                                     std::to_string(g.welcome.max_slot_bytes) + " bytes, expected at least " +
                                     std::to_string(wire::kMinSlotBytes));
  }
  if (slot_bytes > g.welcome.max_slot_bytes) {
    return fail(Errc::kMemoryLimit, g.name + ": maximum slot size is " +
                                        std::to_string(g.welcome.max_slot_bytes) + " bytes, slot_bytes is " +
                                        std::to_string(slot_bytes));
  }
  return {};
}

uint16_t choose_lane_count(uint32_t requested, uint16_t offered) noexcept {
  return static_cast<uint16_t>(requested == 0 ? offered : std::min<uint32_t>(requested, offered));
}

Result<ReducerReservation> reserve(Handshake& g, const config::Endpoint& address, wire::Join join,
                                   const Deadline& deadline) {
  join.mac = client_proof(g, join.view_hash);
  auto joined = send_request<wire::Joined>(g, join, deadline);
  if (!joined) return tl::unexpected(joined.error());
  if (joined->heartbeat_ms == 0 || joined->peer_timeout_ms == 0) {
    return fail(Errc::kBadField, g.name + ": JOINED has no heartbeat interval");
  }
  return ReducerReservation{
      .name = g.name,
      .address = resolved_address(g.socket, address),
      .id = g.welcome.reducer,
      .handle = joined->handle,
      .heartbeat_ms = std::clamp(joined->heartbeat_ms, kMinHeartbeatMs, kMaxHeartbeatMs),
      .peer_timeout_ms = std::max(joined->peer_timeout_ms, kMinHeartbeatMs),
      .link_rate = g.welcome.link_rate.value_or(0),
      .features = g.welcome.features,
      .control = ControlConnection(std::move(g.socket), g.name, joined->handle),
      .lanes = {}};
}

void log_lane_transport(const Handshake& g, const Identity& identity) {
  if (!identity.lanes.rdma || g.tcp_reason.empty()) return;
  identity.log().info(g.name + " lane " + std::to_string(g.hello.lane) + " uses TCP: " + g.tcp_reason);
}

Error replaced_process_error(const Handshake& g) {
  return {Errc::kReducerLost, g.name +
                                  ": another process answers at this address; the reducer was restarted or "
                                  "is behind a load balancer"};
}

Result<void> attach(Handshake& g, const Identity& identity, const AttachParameters& parameters,
                    const Deadline& deadline) {
  if (g.welcome.reducer != parameters.reducer) return tl::unexpected(replaced_process_error(g));
  wire::Attach request;
  request.handle = parameters.handle;
  request.view_hash = parameters.view_hash;
  request.mac = client_proof(g, parameters.view_hash);
  auto attached = send_request<wire::Attached>(g, request, deadline);
  if (!attached) return tl::unexpected(attached.error());
  if (attached->slots != parameters.slots) {
    return fail(Errc::kMismatch, g.name + ": grants " + std::to_string(attached->slots) +
                                     " slots per lane connection, expected " +
                                     std::to_string(parameters.slots));
  }
  if (g.hello.purpose != wire::Purpose::kLane) return {};
  return negotiate_lane_transport(g, identity.lanes, deadline);
}

}  // namespace sluice::engine
