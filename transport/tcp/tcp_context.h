// Frames over TCP: header, extensions and payload follow each other on a byte stream. Payload is received
// directly into the memory of on_header(). Each context has one level-triggered epoll set.
#pragma once

#include <memory>

#include "core/ids.h"
#include "core/result.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {

// Watcher receives events of a descriptor that belongs to no endpoint.
class Watcher {
 public:
  // The descriptor is readable. Called inside poll(), and again in each poll() until it is read.
  virtual void on_readable() noexcept = 0;

 protected:
  ~Watcher() = default;
};

// TcpContext is a Context for endpoints on TCP sockets. Owner thread.
class TcpContext : public Context {
 public:
  // Makes an endpoint of a connected stream socket and owns the socket from then on, also on error. The
  // handshake must be complete, with both sides at a frame boundary and no byte read ahead. Sets O_NONBLOCK,
  // TCP_NODELAY and keepalive (docs/reference/configuration.md). `handler` must outlive the endpoint. The
  // endpoint lives until its on_closed() returns.
  [[nodiscard]] virtual Result<Endpoint*> adopt(Socket socket, Handler& handler,
                                                const EndpointOptions& options) = 0;

  // Adds a descriptor of another transport to this context: wait() ends when `fd` is readable, and poll()
  // calls `watcher`. Both must live until unwatch(); call unwatch() before closing the descriptor.
  [[nodiscard]] virtual Result<Handle> watch(int fd, Watcher& watcher) = 0;
  virtual void unwatch(int fd, Handle watch) noexcept = 0;
};

[[nodiscard]] Result<std::unique_ptr<TcpContext>> make_context();

}  // namespace sluice::transport::tcp
