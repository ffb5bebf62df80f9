// Frames between endpoints of one process: the deterministic reference implementation of transport.h. The
// receiver's poll() copies each payload once, from the sender's buffer to the memory of on_header().
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "transport/transport.h"

namespace sluice::transport::inproc {

// Network creates contexts, for any threads, and connects them. It must outlive them.
class Network {
 public:
  [[nodiscard]] std::unique_ptr<Context> make_context();
  // Connects two contexts of this Network, or one with itself. Call before the owner thread of either context
  // polls, or from the thread that drives both.
  [[nodiscard]] std::pair<Endpoint*, Endpoint*> connect(Context& a, Handler& handler_a, Context& b,
                                                        Handler& handler_b, const EndpointOptions& options);

 private:
  std::atomic<unsigned> connections_{0};
};

}  // namespace sluice::transport::inproc
