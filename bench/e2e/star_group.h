// The workers that one bare star serves together: a chunk is taken from each, and once all have come each is
// answered with as many bytes. Nothing is added, framed, checksummed or looked at; sockets and memory (a slot
// per worker and chunk in flight) are those of a reducer.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/e2e/star_shape.h"
#include "core/arena.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {

class StarGroup {
 public:
  // `sockets`: one per worker, non-blocking, what follows the greetings still to be read. `spin`: how long it
  // polls before it sleeps, as ReducerOptions::spin. Throws Failure.
  StarGroup(const StarShape& shape, std::vector<transport::tcp::Socket> sockets, Nanos spin);

  // Until all workers have ended their connections, or one has that others wait for.
  void serve();

 private:
  struct Connection {
    transport::tcp::Socket socket;
    uint64_t received = 0;
    uint64_t sent = 0;
    bool waits_for_space = false;
    bool ended = false;
  };

  [[nodiscard]] int wait_for_events();
  void receive_from(size_t at);
  void send_to(size_t at);
  void end(Connection& connection);
  [[nodiscard]] bool over() const;

  const StarShape shape_;
  const Nanos spin_;
  transport::tcp::Socket epoll_;
  std::vector<Connection> connections_;
  std::vector<uint32_t> arrived_;  // per slot
  uint64_t complete_ = 0;          // bytes that every connection is owed from the start
  size_t ended_ = 0;
  Arena contributions_;
  Arena results_;
  std::vector<epoll_event> events_;
};

}  // namespace sluice::bench
