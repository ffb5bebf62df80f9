// Frames over queue pairs, beside frames over TCP: one context has both, so a thread that serves workers of
// both kinds sleeps once. docs/adr/0011.
#pragma once

#include <memory>

#include "core/result.h"
#include "transport/rdma/connection.h"
#include "transport/tcp/tcp_context.h"

namespace sluice::transport::rdma {

class RdmaContext : public tcp::TcpContext {
 public:
  using tcp::TcpContext::adopt;
  // Takes over a connection whose ends have joined. `handler` must outlive the endpoint. Owner thread. The
  // endpoint lives until after its on_closed(). What it has sent by then arrives while the context is polled;
  // a context that ends waits for that, a second at most.
  [[nodiscard]] virtual Result<Endpoint*> adopt(Connection connection, Handler& handler,
                                                const EndpointOptions& options) = 0;
};

[[nodiscard]] Result<std::unique_ptr<RdmaContext>> make_context();

}  // namespace sluice::transport::rdma
