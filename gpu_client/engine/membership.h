// What a successful join leaves behind: the view, and an open conversation with every reducer of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/endpoints.h"
#include "gpu_client/engine/control_link.h"
#include "transport/tcp/socket.h"
#include "wire/view.h"

namespace sluice::engine {

struct Seat {
  std::string name;            // "reducer 10.0.0.2:7470"
  config::Endpoint address{};  // where it was reached, in numbers where that can be said
  uint64_t id = 0;
  uint32_t handle = 0;  // the session's name there
  uint32_t heartbeat_ms = 0;
  uint32_t peer_timeout_ms = 0;
  uint32_t slots = 0;  // W of each lane connection
  ControlLink control;
  std::vector<transport::tcp::Socket> lanes;  // attached, COMMIT not yet sent
};

struct Membership {
  wire::View view;
  uint64_t view_hash = 0;
  uint64_t incarnation = 0;
  bool survives = false;    // losses are survived: this rank and every reducer of the view can
  std::vector<Seat> seats;  // in the order of the view; seats[0] is the arbiter
};

}  // namespace sluice::engine
