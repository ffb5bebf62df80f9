// Frames between endpoints of one process: the reference implementation of the contract, deterministic, no
// sockets. Payloads are copied once, from the sender's buffer into the place the receiver's on_header()
// names, during the receiver's poll().
#pragma once

#include <memory>
#include <utility>

#include "transport/transport.h"

namespace sluice::transport::inproc {

// Contexts of one Network may live on different threads. The Network outlives its contexts.
class Network {
 public:
  virtual ~Network() = default;
  [[nodiscard]] virtual std::unique_ptr<Context> make_context() = 0;
  // Joins two contexts made here (or one with itself). Call before either context's owner thread polls, or
  // from a test that drives both by hand.
  [[nodiscard]] virtual std::pair<Endpoint*, Endpoint*> connect(Context& a, Handler& handler_a, Context& b,
                                                                Handler& handler_b,
                                                                const EndpointOptions& options) = 0;
};

[[nodiscard]] std::unique_ptr<Network> make_network();

}  // namespace sluice::transport::inproc
