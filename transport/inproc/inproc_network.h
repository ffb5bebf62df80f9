// Frames between endpoints of one process: the deterministic reference implementation of transport.h, without
// sockets. The receiver's poll() copies each payload once, from the sender's buffer to the memory of
// on_header().
#pragma once

#include <memory>
#include <utility>

#include "transport/transport.h"

namespace sluice::transport::inproc {

// Network creates contexts and connects them. Its contexts may live on different threads. It must outlive
// them.
class Network {
 public:
  virtual ~Network() = default;
  [[nodiscard]] virtual std::unique_ptr<Context> make_context() = 0;
  // Connects two contexts of this Network, or one with itself. Call before the owner thread of either context
  // polls, or from the thread that drives both.
  [[nodiscard]] virtual std::pair<Endpoint*, Endpoint*> connect(Context& a, Handler& handler_a, Context& b,
                                                                Handler& handler_b,
                                                                const EndpointOptions& options) = 0;
};

[[nodiscard]] std::unique_ptr<Network> make_network();

}  // namespace sluice::transport::inproc
