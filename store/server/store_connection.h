// Serves the requests of one connection with purpose kStore (protocol.md section 16).
#pragma once

#include <functional>
#include <string>

#include "transport/tcp/message_channel.h"

namespace sluice::store {

class StoreServer;

// Sends STORE_READY, then answers requests until the peer closes, breaks a rule, or the server stops.
// Only a reducer may send STEP, COPY_VERSION and COMMITTED. A model is changed by clients of its `job` only,
// and read by all. `features`: of HELLO.
void serve_store_connection(StoreServer& server, transport::tcp::MessageChannel& channel,
                            const std::string& peer, const std::string& job, uint64_t features,
                            const std::function<void(const std::string&)>& log) noexcept;

}  // namespace sluice::store
