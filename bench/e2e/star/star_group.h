// Class StarGroup serves the workers of one bare TCP star. It receives a chunk from each worker; when all
// chunks of a slot are complete, it sends as many bytes to each worker. It does not add, frame, checksum or
// read the data. The sockets and the memory, one slot per worker and chunk in flight, are like those of a
// reducer.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/e2e/star/star_shape.h"
#include "core/arena.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {

class StarGroup {
 public:
  // `sockets`: one non-blocking socket per worker, after the handshake. `spin`: time to poll before a sleep,
  // like ReducerOptions::spin. Throws Failure.
  StarGroup(const StarShape& shape, std::vector<transport::tcp::Socket> sockets, Nanos spin);

  // Returns when all workers have closed their connections, or when a worker closed and others wait for its
  // data.
  void serve();

 private:
  struct Connection {
    transport::tcp::Socket socket;
    uint64_t received = 0;
    uint64_t sent = 0;
    bool waits_for_space = false;
    bool is_closed = false;
  };

  [[nodiscard]] int wait_for_events();
  void receive_from(size_t at);
  void send_to(size_t at);
  void remove(Connection& connection);
  [[nodiscard]] bool is_finished() const;

  const StarShape shape_;
  const Nanos spin_;
  transport::tcp::Socket epoll_;
  std::vector<Connection> connections_;
  std::vector<uint32_t> arrived_;  // number of received chunks per slot
  uint64_t complete_ = 0;          // bytes of complete chunks since the start, which each connection receives
  size_t closed_ = 0;              // number of closed connections
  Arena contributions_;
  Arena results_;
  std::vector<epoll_event> events_;
};

}  // namespace sluice::bench
