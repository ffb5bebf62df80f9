#include "bench/e2e/star/star_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "bench/e2e/pool/local_pool.h"
#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "bench/e2e/star/star_shape.h"
#include "config/sizes.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/log.h"
#include "transport/tcp/address.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

constexpr Nanos kHandshakeTimeout = 5 * kSecond;
constexpr Nanos kGroupTimeout = 60 * kSecond;  // from the first worker of a group to the last
constexpr Nanos kNoTimeout = -1;
constexpr Nanos kStarStartTimeout = 20 * kSecond;

// Class StarGroup serves the workers of one star. It receives a chunk from each worker; when all chunks of a
// slot are complete, it sends as many bytes to each worker. It does not add, frame, checksum or read the
// data. The sockets and the memory, one slot per worker and chunk in flight, are like those of a reducer.
class StarGroup {
 public:
  // `sockets`: one non-blocking socket per worker, after the handshake. `spin`: time to poll before a sleep,
  // like ReducerOptions::spin. Throws Failure.
  StarGroup(const StarShape& shape, std::vector<tcp::Socket> sockets, Nanos spin)
      : shape_(shape),
        spin_(spin),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        arrived_(shape.slots, 0),
        contributions_(
            value_or_fail(Arena::map(shape.workers * shape.slots * shape.chunk_bytes), kExitFailure)),
        results_(value_or_fail(Arena::map(shape.slots * shape.chunk_bytes), kExitFailure)),
        events_(shape.workers) {
    for (tcp::Socket& socket : sockets) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = connections_.size()}};
      epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket.fd(), &event);
      connections_.push_back(Connection{.socket = std::move(socket)});
    }
  }

  // Returns when all workers have closed their connections, or when a worker closed and others wait for its
  // data.
  void serve() {
    while (!is_finished()) {
      const int n = wait_for_events();
      for (int i = 0; i < n; ++i) {
        const epoll_event& event = events_[static_cast<size_t>(i)];
        if ((event.events & EPOLLOUT) != 0) send_to(event.data.u64);
        if ((event.events & ~uint32_t{EPOLLOUT}) != 0) receive_from(event.data.u64);
      }
    }
  }

 private:
  struct Connection {
    tcp::Socket socket;
    uint64_t received = 0;
    uint64_t sent = 0;
    bool waits_for_space = false;
    bool is_closed = false;
  };

  int wait_for_events() {
    const auto poll_events = [this](int timeout) {
      return epoll_wait(epoll_.fd(), events_.data(), static_cast<int>(events_.size()), timeout);
    };
    if (spin_ > 0) {
      const Nanos until = monotonic_now() + spin_;
      do {
        if (const int n = poll_events(0); n > 0) return n;
      } while (monotonic_now() < until);
    }
    const int n = poll_events(-1);
    if (n < 0 && errno != EINTR)
      throw Failure(kExitFailure, fmt::format("epoll_wait: {}", std::strerror(errno)));
    return n;
  }

  void receive_from(size_t at) {
    Connection& c = connections_[at];
    if (c.is_closed) return;
    do {
      const uint64_t slot = c.received / shape_.chunk_bytes % shape_.slots;
      const uint64_t offset = c.received % shape_.chunk_bytes;
      std::byte* to = contributions_.data() + (slot * connections_.size() + at) * shape_.chunk_bytes + offset;
      const ssize_t n = recv(c.socket.fd(), to, shape_.chunk_bytes - offset, 0);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (n <= 0) return remove(c);
      c.received += static_cast<uint64_t>(n);
      if (c.received % shape_.chunk_bytes != 0) return;  // the socket is empty; epoll reports more data
      if (++arrived_[slot] == connections_.size()) {
        arrived_[slot] = 0;
        complete_ += shape_.chunk_bytes;
        for (size_t i = 0; i < connections_.size(); ++i) send_to(i);
      }
      // A worker with a full window sends nothing, so another recv() would only delay the other workers.
    } while (c.received < complete_ + shape_.slots * shape_.chunk_bytes);
  }

  void send_to(size_t at) {
    Connection& c = connections_[at];
    if (c.is_closed) return;
    while (c.sent < complete_) {
      const uint64_t offset = c.sent % shape_.chunk_bytes;
      const uint64_t length = std::min(complete_ - c.sent, shape_.chunk_bytes - offset);
      const std::byte* from =
          results_.data() + c.sent / shape_.chunk_bytes % shape_.slots * shape_.chunk_bytes + offset;
      const ssize_t n = send(c.socket.fd(), from, length, MSG_NOSIGNAL);
      if (n <= 0) break;
      c.sent += static_cast<uint64_t>(n);
    }
    const bool waits = c.sent < complete_;
    if (waits == c.waits_for_space) return;
    c.waits_for_space = waits;
    epoll_event event{.events = waits ? uint32_t{EPOLLIN} | EPOLLOUT : uint32_t{EPOLLIN},
                      .data = {.u64 = at}};
    epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, c.socket.fd(), &event);
  }

  void remove(Connection& connection) {
    connection.is_closed = true;
    ++closed_;
    epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, connection.socket.fd(), nullptr);
  }

  // A chunk that some worker has sent stays incomplete when another worker has closed its connection.
  bool is_finished() const {
    if (closed_ == 0) return false;
    return closed_ == connections_.size() ||
           std::any_of(connections_.begin(), connections_.end(),
                       [this](const Connection& c) { return c.received > complete_; });
  }

  const StarShape shape_;
  const Nanos spin_;
  tcp::Socket epoll_;
  std::vector<Connection> connections_;
  std::vector<uint32_t> arrived_;  // number of received chunks per slot
  uint64_t complete_ = 0;          // bytes of complete chunks since the start, which each connection receives
  size_t closed_ = 0;              // number of closed connections
  Arena contributions_;
  Arena results_;
  std::vector<epoll_event> events_;
};

// Returns no socket when no worker connects within `timeout`.
std::optional<tcp::Socket> accept_one(int listener, Nanos timeout) {
  pollfd p{.fd = listener, .events = POLLIN, .revents = 0};
  if (poll(&p, 1, timeout < 0 ? -1 : static_cast<int>(timeout / kMillisecond)) != 1) return std::nullopt;
  tcp::Socket socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) throw Failure(kExitFailure, fmt::format("accept: {}", std::strerror(errno)));
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

Result<StarShape> read_handshake(const tcp::Socket& worker) {
  StarHandshake handshake;
  if (const Status s = tcp::read_exact(worker, handshake, monotonic_now() + kHandshakeTimeout); !s.ok())
    return fail(s.code(), "cannot read the handshake: " + std::string(to_string(s.code())));
  return decode_handshake(handshake);
}

void serve_one_group(int listener, Nanos spin) {
  std::vector<tcp::Socket> sockets;
  StarShape shape;
  Nanos until = 0;
  do {
    auto socket = accept_one(listener, sockets.empty() ? kNoTimeout : until - monotonic_now());
    if (!socket) {
      if (sockets.empty() || monotonic_now() < until) continue;
      log::warn(fmt::format("only {} of {} workers connected within {} s; closing their connections",
                            sockets.size(), shape.workers, kGroupTimeout / kSecond));
      return;
    }
    auto requested = read_handshake(*socket);
    if (requested && !sockets.empty() && *requested != shape)
      requested = fail(Errc::kMismatch, "the handshake differs from that of the waiting workers");
    if (!requested) {
      log::warn(fmt::format("connection from {} refused: {}", tcp::peer_name(socket->fd()),
                            requested.error().text));
      continue;
    }
    if (sockets.empty()) {
      shape = *requested;
      until = monotonic_now() + kGroupTimeout;
    }
    sockets.push_back(std::move(*socket));
  } while (sockets.size() < shape.workers || sockets.empty());
  StarGroup(shape, std::move(sockets), spin).serve();
}

}  // namespace

void run_star_server(const StarServerOptions& options) {
  auto listening = tcp::listen_on(options.host, options.port, {});
  if (!listening) {
    throw Failure(listening.error().code == Errc::kAddressInUse ? kExitTryAgain : kExitFailure,
                  listening.error().text);
  }
  const tcp::Socket listener = std::move(*listening);
  const uint16_t port = value_or_fail(tcp::bound_port(listener.fd()), kExitFailure);
  write_result_file(options.port_file, fmt::format("{}\n", port));
  log::info(fmt::format("star server listening on {}",
                        tcp::endpoint_text(options.host.empty() ? "*" : options.host, port)));
  for (;;) serve_one_group(listener.fd(), options.spin);
}

Result<LocalStar> start_star(ProcessGroup& processes, Nanos spin) {
  auto directory = TemporaryDirectory::make();
  if (!directory) return tl::unexpected<Error>(directory.error());
  const std::string port_file = directory->path() + "/star";
  const auto child =
      processes.start({.name = "star server",
                       .arguments = {"--log-level", "warn", "bench", "star-server", "--listen", "127.0.0.1:0",
                                     "--spin", config::duration_text(spin), "--port-file", port_file}});
  if (!child) return tl::unexpected<Error>(child.error());
  const auto port = wait_for_port(processes, *child, port_file, monotonic_now() + kStarStartTimeout);
  if (!port) return add_context("cannot start the star server", port.error());
  return LocalStar{.child = *child, .port = *port};
}

}  // namespace sluice::bench
