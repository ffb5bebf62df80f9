// Struct ReducerReservation is this rank's place at one reducer: the JOINED session and its connections. The
// functions make reservations (JOIN) and attach lane connections (ATTACH) after WELCOME. They serve a session
// that starts, a reducer that is added to a running one, and a connection that is reopened (protocol.md
// sections 5 and 11). All calls block, with deadlines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "core/result.h"
#include "gpu_client/engine/control/control_connection.h"
#include "gpu_client/engine/join/handshake.h"
#include "transport/path_monitor.h"
#include "transport/tcp/socket.h"
#include "wire/messages.h"

namespace sluice::engine {

struct ReducerReservation {
  std::string name;            // "reducer 10.0.0.2:7470"
  config::Endpoint address{};  // where the reducer was reached, numeric where possible
  uint64_t id = 0;
  uint32_t handle = 0;  // the session's handle at the reducer
  uint32_t heartbeat_ms = 0;
  uint32_t peer_timeout_ms = 0;
  uint32_t slots = 0;  // W of each lane connection
  bool same_process = false;
  uint64_t link_rate = 0;  // bits/s, from WELCOME; 0: unknown
  uint64_t features = 0;   // feature bits of WELCOME
  ControlConnection control;
  std::vector<transport::tcp::Socket> lanes;  // attached; COMMIT was not sent yet
  // Of these lanes, once the session uses them.
  std::shared_ptr<transport::LanePaths> paths{};
};

// Checks that the limits in WELCOME suffice for a session in which the user asked for `slot_bytes` (0:
// default).
[[nodiscard]] Result<void> check_capacity(const Handshake& handshake, uint32_t slot_bytes);

// The number of lane connections to a reducer that offers `offered` when the user requested `requested` (0:
// all).
[[nodiscard]] uint16_t choose_lane_count(uint32_t requested, uint16_t offered) noexcept;

// Sends JOIN, to which it adds the proof, and receives JOINED. The handshake's socket becomes the control
// connection of the reservation. On an error the socket stays where it is, because the other ranks would
// learn of its close before they learn the reason. `address` is the one that the user configured.
[[nodiscard]] Result<ReducerReservation> reserve(Handshake& handshake, const config::Endpoint& address,
                                                 wire::Join join, const Deadline& deadline);

struct AttachParameters {
  uint64_t reducer = 0;    // id of the process that must answer
  uint32_t handle = 0;     // from JOINED
  uint64_t view_hash = 0;  // from JOIN
  uint32_t slots = 0;      // W; 0 for a control connection
};

// Sends ATTACH and receives ATTACHED; for a lane connection also negotiates the transport. Returns
// kReducerLost when another process answers at the address, and kMismatch when the reducer grants other
// slots.
[[nodiscard]] Result<void> attach(Handshake& handshake, const Identity& identity,
                                  const AttachParameters& parameters, const Deadline& deadline);
// The error of attach() when another process answers.
[[nodiscard]] Error replaced_process_error(const Handshake& handshake);

// Logs that a lane connection of a running session uses TCP although RDMA was selected.
void log_lane_transport(const Handshake& handshake, const Identity& identity);

}  // namespace sluice::engine
