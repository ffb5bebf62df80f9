#include "bench/e2e/star/star_group.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "bench/e2e/process/exit_codes.h"
#include "core/clock.h"

namespace sluice::bench {

StarGroup::StarGroup(const StarShape& shape, std::vector<transport::tcp::Socket> sockets, Nanos spin)
    : shape_(shape),
      spin_(spin),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      arrived_(shape.slots, 0),
      contributions_(
          value_or_fail(Arena::map(shape.workers * shape.slots * shape.chunk_bytes), kExitFailure)),
      results_(value_or_fail(Arena::map(shape.slots * shape.chunk_bytes), kExitFailure)),
      events_(shape.workers) {
  for (transport::tcp::Socket& socket : sockets) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = connections_.size()}};
    epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket.fd(), &event);
    connections_.push_back(Connection{.socket = std::move(socket)});
  }
}

void StarGroup::serve() {
  while (!is_finished()) {
    const int n = wait_for_events();
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events_[static_cast<size_t>(i)];
      if ((event.events & EPOLLOUT) != 0) send_to(event.data.u64);
      if ((event.events & ~uint32_t{EPOLLOUT}) != 0) receive_from(event.data.u64);
    }
  }
}

int StarGroup::wait_for_events() {
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

void StarGroup::receive_from(size_t at) {
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

void StarGroup::send_to(size_t at) {
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
  epoll_event event{.events = waits ? uint32_t{EPOLLIN} | EPOLLOUT : uint32_t{EPOLLIN}, .data = {.u64 = at}};
  epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, c.socket.fd(), &event);
}

void StarGroup::remove(Connection& connection) {
  connection.is_closed = true;
  ++closed_;
  epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, connection.socket.fd(), nullptr);
}

// A chunk that some worker has sent stays incomplete when another worker has closed its connection.
bool StarGroup::is_finished() const {
  if (closed_ == 0) return false;
  return closed_ == connections_.size() ||
         std::any_of(connections_.begin(), connections_.end(),
                     [this](const Connection& c) { return c.received > complete_; });
}

}  // namespace sluice::bench
