#include "transport/tcp/tcp_context.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/assert.h"
#include "transport/tcp/address.h"
#include "transport/tcp/tcp_endpoint.h"

namespace sluice::transport::tcp {
namespace {

// Ready sockets taken from one epoll call; the rest comes with the next.
constexpr size_t kEvents = 128;
// Turns that go by without asking epoll while some endpoint is known to have more bytes. The others wait that
// much longer.
constexpr unsigned kTurnsWithoutEpoll = 3;
// How often deadlines are looked at; an endpoint with a short one asks for more often.
constexpr Nanos kDeadlineScan = 100 * kMillisecond;

class EpollContext final : public TcpContext {
 public:
  explicit EpollContext(std::unique_ptr<Poller> poller)
      : poller_(std::move(poller)),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(FrameReader::kScratchBytes)) {
    agenda_.scratch = {scratch_.get(), FrameReader::kScratchBytes};
  }

  Result<Endpoint*> adopt(Socket socket, Handler& handler, const EndpointOptions& options) override;
  Result<Handle> watch(int fd, Watcher& watcher) override;
  void unwatch(int fd, Handle watch) noexcept override;
  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { poller_->wake(); }
  size_t endpoint_count() const noexcept override { return count_; }

 private:
  struct Seat {
    uint32_t generation = 0;
    std::unique_ptr<TcpEndpoint> endpoint;
    Watcher* watcher = nullptr;
  };

  [[nodiscard]] TcpEndpoint* find(Handle h) const noexcept;
  [[nodiscard]] Watcher* find_watcher(Handle h) const noexcept;
  [[nodiscard]] uint32_t free_seat();
  void vacate(uint32_t index) noexcept;
  unsigned receive(Nanos now, size_t budget_bytes) noexcept;
  unsigned send(Nanos now) noexcept;
  void check_deadlines(Nanos now) noexcept;
  unsigned finish() noexcept;

  const std::unique_ptr<Poller> poller_;
  std::vector<Seat> seats_;
  std::vector<uint32_t> free_seats_;
  size_t count_ = 0;
  const std::unique_ptr<std::byte[]> scratch_;
  Agenda agenda_;
  std::vector<Handle>
      visiting_;  // a list of the agenda while it is worked off; entries made meanwhile are for later
  std::array<epoll_event, kEvents> events_;
  size_t ready_ = 0;  // events_ that the last wait() brought
  unsigned without_epoll_ = 0;
  uint64_t turn_ = 0;
  Nanos next_scan_ = 0;
  Nanos scan_interval_ = kDeadlineScan;
};

TcpEndpoint* EpollContext::find(Handle h) const noexcept {
  // A handle may outlive its endpoint: events of a batch in which it was closed, lists made before.
  const Seat& seat = seats_[h.index];
  return seat.generation == h.generation ? seat.endpoint.get() : nullptr;
}

Watcher* EpollContext::find_watcher(Handle h) const noexcept {
  const Seat& seat = seats_[h.index];
  return seat.generation == h.generation ? seat.watcher : nullptr;
}

uint32_t EpollContext::free_seat() {
  if (free_seats_.empty()) {
    free_seats_.push_back(static_cast<uint32_t>(seats_.size()));
    seats_.emplace_back();
    // Nothing grows later: each list holds an endpoint once, and those that closed within the turn.
    for (auto* list : {&agenda_.flush, &agenda_.receive, &agenda_.finish, &visiting_})
      list->reserve(2 * seats_.size());
    free_seats_.reserve(seats_.size());
  }
  return free_seats_.back();
}

void EpollContext::vacate(uint32_t index) noexcept {
  ++seats_[index].generation;
  free_seats_.push_back(index);
}

Result<Endpoint*> EpollContext::adopt(Socket socket, Handler& handler, const EndpointOptions& options) {
  SLUICE_ASSERT(!socket.accompanied());  // its peer will speak elsewhere
  const int fd = socket.fd();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return fail(Errc::kSystem, "cannot make a socket non-blocking: " + error_text(errno));
  }
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  probe_when_idle(fd);
  const uint32_t index = free_seat();
  Seat& seat = seats_[index];
  const Handle self{.index = index, .generation = seat.generation};
  if (!poller_->add(fd, self, EPOLLIN)) {
    return fail(Errc::kSystem, "cannot watch a socket: " + error_text(errno));
  }
  seat.endpoint = std::make_unique<TcpEndpoint>(std::move(socket), self, handler, options, *poller_, agenda_);
  free_seats_.pop_back();
  ++count_;
  if (options.frame_deadline > 0) {
    scan_interval_ = std::clamp(options.frame_deadline / 4, kMillisecond, scan_interval_);
  }
  return seat.endpoint.get();
}

Result<Handle> EpollContext::watch(int fd, Watcher& watcher) {
  const uint32_t index = free_seat();
  const Handle self{.index = index, .generation = seats_[index].generation};
  if (!poller_->add(fd, self, EPOLLIN))
    return fail(Errc::kSystem, "cannot watch a descriptor: " + error_text(errno));
  seats_[index].watcher = &watcher;
  free_seats_.pop_back();
  return self;
}

void EpollContext::unwatch(int fd, Handle watch) noexcept {
  poller_->remove(fd);
  seats_[watch.index].watcher = nullptr;
  vacate(watch.index);
}

unsigned EpollContext::poll(Nanos now, size_t budget_bytes) noexcept {
  ++turn_;
  unsigned done = send(now);
  done += receive(now, budget_bytes);
  if (agenda_.timed > 0 && now >= next_scan_) check_deadlines(now);
  done += send(now);  // what the callbacks have put
  return done + finish();
}

// Here and below lists and seats are walked by index: a callback may adopt, and they may move then.
unsigned EpollContext::receive(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = 0;
  if (ready_ == 0 && (agenda_.receive.empty() || ++without_epoll_ > kTurnsWithoutEpoll)) {
    ready_ = poller_->collect(events_);
    without_epoll_ = 0;
  }
  visiting_.swap(agenda_.receive);
  for (size_t i = 0; i < visiting_.size(); ++i) {
    if (TcpEndpoint* ep = find(visiting_[i])) done += ep->continue_receiving(now, turn_, budget_bytes);
  }
  visiting_.clear();
  for (const epoll_event& event : std::span(events_).first(std::exchange(ready_, 0))) {
    const Handle owner = Poller::owner(event);
    if (TcpEndpoint* ep = find(owner)) {
      done += ep->ready(event.events, now, turn_, budget_bytes);
    } else if (Watcher* w = find_watcher(owner)) {
      w->readable();
      ++done;
    }
  }
  return done;
}

unsigned EpollContext::send(Nanos now) noexcept {
  unsigned done = 0;
  visiting_.swap(agenda_.flush);
  for (size_t i = 0; i < visiting_.size(); ++i) {
    if (TcpEndpoint* ep = find(visiting_[i])) done += ep->continue_sending(now);
  }
  visiting_.clear();
  return done;
}

void EpollContext::check_deadlines(Nanos now) noexcept {
  next_scan_ = now + scan_interval_;
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (seats_[i].endpoint) seats_[i].endpoint->check_deadline(now, turn_);
  }
}

unsigned EpollContext::finish() noexcept {
  unsigned done = 0;
  // A callback may close further endpoints, which are finished here too.
  for (; done < agenda_.finish.size(); ++done) {
    const Handle h = agenda_.finish[done];
    seats_[h.index].endpoint->finish();
    seats_[h.index].endpoint.reset();
    vacate(h.index);
    --count_;
  }
  agenda_.finish.clear();
  return done;
}

void EpollContext::wait(Nanos timeout) noexcept {
  const bool work =
      ready_ > 0 || !agenda_.flush.empty() || !agenda_.receive.empty() || !agenda_.finish.empty();
  if (work) timeout = 0;
  // The owner must come round for the deadlines.
  if (agenda_.timed > 0 && (timeout < 0 || timeout > scan_interval_)) timeout = scan_interval_;
  if (ready_ == 0) {
    ready_ = poller_->wait(events_, timeout);
  }
}

}  // namespace

Result<std::unique_ptr<TcpContext>> make_context() {
  auto poller = Poller::make();
  if (!poller) return tl::unexpected(poller.error());
  return std::make_unique<EpollContext>(std::move(*poller));
}

}  // namespace sluice::transport::tcp
