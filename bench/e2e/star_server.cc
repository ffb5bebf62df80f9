#include "bench/e2e/star_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "bench/e2e/exit_codes.h"
#include "bench/e2e/port_file.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

constexpr Nanos kConnectTimeout = 20 * kSecond;
constexpr int kStallMs = 60'000;  // an exchange that moves nothing for so long has failed

bool again(ssize_t n) {
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

class StarServer {
 public:
  StarServer(const StarServerOptions& options, int listener)
      : chunk_(options.chunk_bytes),
        slots_(star_slots(options.window_bytes, options.chunk_bytes)),
        arrived_(slots_, 0) {
    epoll_ = tcp::Socket(epoll_create1(EPOLL_CLOEXEC));
    contributions_ = value_or_fail(Arena::map(options.workers * slots_ * chunk_), kExitFailure);
    results_ = value_or_fail(Arena::map(slots_ * chunk_), kExitFailure);
    for (uint32_t i = 0; i < options.workers; ++i) accept_one(listener);
  }

  void serve() {
    std::array<epoll_event, 64> events{};
    for (;;) {
      const int n = epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), -1);
      if (n < 0 && errno != EINTR)
        throw Failure(kExitFailure, fmt::format("epoll_wait: {}", std::strerror(errno)));
      for (int i = 0; i < n; ++i) {
        const size_t at = events[static_cast<size_t>(i)].data.u64;
        if ((events[static_cast<size_t>(i)].events & EPOLLOUT) != 0) send_to(at);
        if ((events[static_cast<size_t>(i)].events & ~uint32_t{EPOLLOUT}) != 0 && !receive_from(at)) return;
      }
    }
  }

 private:
  struct Connection {
    tcp::Socket socket;
    uint64_t received = 0;
    uint64_t sent = 0;
    bool waits_for_space = false;
  };

  void accept_one(int listener) {
    pollfd p{.fd = listener, .events = POLLIN, .revents = 0};
    if (poll(&p, 1, static_cast<int>(kConnectTimeout / kMillisecond)) != 1)
      throw Failure(kExitFailure, "a star worker is missing");
    tcp::Socket socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) throw Failure(kExitFailure, fmt::format("accept: {}", std::strerror(errno)));
    const int on = 1;
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_event event{.events = EPOLLIN, .data = {.u64 = connections_.size()}};
    epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket.fd(), &event);
    connections_.push_back(Connection{.socket = std::move(socket)});
  }

  // False when the peer ended.
  bool receive_from(size_t at) {
    Connection& c = connections_[at];
    for (;;) {
      const uint64_t slot = c.received / chunk_ % slots_;
      const uint64_t offset = c.received % chunk_;
      std::byte* to = contributions_.data() + (slot * connections_.size() + at) * chunk_ + offset;
      const ssize_t n = recv(c.socket.fd(), to, chunk_ - offset, 0);
      if (again(n)) return true;
      if (n <= 0) return false;
      c.received += static_cast<uint64_t>(n);
      if (c.received % chunk_ != 0) return true;  // what is there has been taken; epoll tells of more
      if (++arrived_[slot] == connections_.size()) {
        arrived_[slot] = 0;
        complete_ += chunk_;
        for (size_t i = 0; i < connections_.size(); ++i) send_to(i);
      }
    }
  }

  void send_to(size_t at) {
    Connection& c = connections_[at];
    while (c.sent < complete_) {
      const uint64_t offset = c.sent % chunk_;
      const uint64_t want = std::min(complete_ - c.sent, chunk_ - offset);
      const ssize_t n = send(c.socket.fd(), results_.data() + c.sent / chunk_ % slots_ * chunk_ + offset,
                             want, MSG_NOSIGNAL);
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

  uint64_t chunk_;
  uint64_t slots_;
  std::vector<size_t> arrived_;  // per slot
  uint64_t complete_ = 0;        // bytes that every connection is owed from the start
  tcp::Socket epoll_;
  Arena contributions_;
  Arena results_;
  std::vector<Connection> connections_;
};

}  // namespace

uint64_t star_slots(uint64_t window_bytes, uint64_t chunk_bytes) noexcept {
  return std::max<uint64_t>(2, window_bytes / chunk_bytes);
}

int run_star_server(const StarServerOptions& options) {
  tcp::Socket listener = value_or_fail(tcp::listen_on("127.0.0.1", 0, {}), kExitFailure);
  const uint16_t port = value_or_fail(tcp::bound_port(listener.fd()), kExitFailure);
  if (auto written = write_port_file(options.port_file, port); !written)
    throw Failure(kExitFailure, written.error().text);
  StarServer(options, listener.fd()).serve();
  return kExitOk;
}

StarClient::StarClient(uint16_t port, uint64_t chunk_bytes, uint64_t window_bytes)
    : chunk_bytes_(chunk_bytes), window_bytes_(star_slots(window_bytes, chunk_bytes) * chunk_bytes) {
  fd_ = value_or_fail(tcp::connect_to("127.0.0.1", port, {}, monotonic_now() + kConnectTimeout), kExitFailure)
            .release();
}

StarClient::~StarClient() {
  if (fd_ >= 0) close(fd_);
}

void StarClient::exchange(const std::byte* send_from, std::byte* recv_to, uint64_t bytes) {
  uint64_t sent = 0;
  uint64_t received = 0;
  while (received < bytes) {
    bool moved = false;
    const uint64_t may_send = std::min(bytes, received / chunk_bytes_ * chunk_bytes_ + window_bytes_);
    if (sent < may_send) {
      const ssize_t n = send(fd_, send_from + sent, may_send - sent, MSG_NOSIGNAL);
      if (n < 0 && !again(n))
        throw Failure(kExitFailure, fmt::format("star: send: {}", std::strerror(errno)));
      if (n > 0) sent += static_cast<uint64_t>(n), moved = true;
    }
    const ssize_t n = recv(fd_, recv_to + received, bytes - received, 0);
    if (n == 0 || (n < 0 && !again(n))) throw Failure(kExitFailure, "star: the server is gone");
    if (n > 0) received += static_cast<uint64_t>(n), moved = true;
    if (moved) continue;
    pollfd p{
        .fd = fd_, .events = static_cast<short>(sent < may_send ? POLLIN | POLLOUT : POLLIN), .revents = 0};
    if (poll(&p, 1, kStallMs) == 0) throw Failure(kExitFailure, "star: nothing moved for 60 s");
  }
}

}  // namespace sluice::bench
