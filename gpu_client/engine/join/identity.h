// Struct Identity describes this rank to the reducers. It is the same on every connection of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/ids.h"
#include "gpu_client/engine/join/lane_settings.h"
#include "gpu_client/engine/join/tls_settings.h"
#include "wire/handshake.h"

namespace sluice::engine {

struct Identity {
  SessionId session;
  Rank rank = 0;
  uint32_t ranks = 0;
  std::string job = "default";
  std::string tenant{};  // empty: the job's name is the tenant
  // Without a token nothing is proved, and a reducer that requires a proof is an error.
  std::optional<wire::Digest> token;
  std::string interface_address;  // local address to connect from; empty: chosen by the route
  bool fault_tolerant = false;    // request a fault-tolerant session (protocol.md section 11)
  std::shared_ptr<const TlsSettings> tls = nullptr;  // null: no TLS
  LaneSettings lanes{};
};

}  // namespace sluice::engine
