// Frames over TCP: the same 64 bytes, extensions and payload on a stream, received straight into the place
// on_header() names. epoll, level triggered, one set per context; sockets are non-blocking. No Asio here:
// this is the data path.
#pragma once

#include <memory>

#include "core/ids.h"
#include "core/result.h"
#include "transport/tcp/socket.h"
#include "transport/transport.h"

namespace sluice::transport::tcp {

// Of a descriptor that is not an endpoint's.
class Watcher {
 public:
  // It is readable. Inside poll(); again at each until it is read.
  virtual void readable() noexcept = 0;

 protected:
  ~Watcher() = default;
};

class TcpContext : public Context {
 public:
  // Takes over a connected stream socket whose handshake is over (both sides at a frame boundary, nothing
  // read ahead): makes it non-blocking and TCP_NODELAY, has the kernel probe an idle peer (docs/timeouts.md,
  // keepalive), and closes it with the endpoint. On error the fd is
  // closed too. `handler` must outlive the endpoint. Owner thread. The endpoint lives until after its
  // on_closed().
  [[nodiscard]] virtual Result<Endpoint*> adopt(Socket socket, Handler& handler,
                                                const EndpointOptions& options) = 0;
  [[nodiscard]] Result<Endpoint*> adopt(int fd, Handler& handler, const EndpointOptions& options) {
    return adopt(Socket(fd), handler, options);
  }

  // Another transport's descriptors in this one's sleep: wait() ends when `fd` is readable, and poll() tells
  // `watcher`. Both stay until unwatch(), which comes before the descriptor is closed. Owner thread.
  [[nodiscard]] virtual Result<Handle> watch(int fd, Watcher& watcher) = 0;
  virtual void unwatch(int fd, Handle watch) noexcept = 0;
};

[[nodiscard]] Result<std::unique_ptr<TcpContext>> make_context();

}  // namespace sluice::transport::tcp
