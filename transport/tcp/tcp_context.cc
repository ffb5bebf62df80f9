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
#include "transport/tcp/socket_options.h"
#include "transport/tcp/tcp_endpoint.h"

namespace sluice::transport::tcp {
namespace {

// Maximum number of events of one epoll call; the next call returns the rest.
constexpr size_t kEvents = 128;
// Polls without an epoll call while an endpoint is known to have more bytes; other endpoints wait that long.
constexpr unsigned kPollsWithoutEpoll = 3;
// Interval of deadline checks; an endpoint with a short deadline reduces it.
constexpr Nanos kDeadlineScan = 100 * kMillisecond;

class EpollContext final : public TcpContext {
 public:
  explicit EpollContext(std::unique_ptr<Poller> poller)
      : poller_(std::move(poller)),
        scratch_(std::make_unique_for_overwrite<std::byte[]>(FrameReader::kScratchBytes)) {
    pending_.scratch = {scratch_.get(), FrameReader::kScratchBytes};
  }

  Result<Endpoint*> adopt(Socket socket, Handler& handler, const EndpointOptions& options) override;
  Result<Handle> watch(int fd, Watcher& watcher) override;
  void unwatch(int fd, Handle watch) noexcept override;
  unsigned poll(Nanos now, size_t budget_bytes) noexcept override;
  void wait(Nanos timeout) noexcept override;
  void wake() noexcept override { poller_->wake(); }
  size_t endpoint_count() const noexcept override { return count_; }

 private:
  struct Entry {
    uint32_t generation = 0;
    std::unique_ptr<TcpEndpoint> endpoint;
    Watcher* watcher = nullptr;
  };

  // Null when the handle has outlived its entry: in events of the batch that closed it, and in older lists.
  [[nodiscard]] const Entry* find(Handle h) const noexcept {
    const Entry& entry = entries_[h.index];
    return entry.generation == h.generation ? &entry : nullptr;
  }
  [[nodiscard]] uint32_t find_free_entry();
  void release_entry(uint32_t index) noexcept;
  unsigned receive(Nanos now, size_t budget_bytes) noexcept;
  unsigned send(Nanos now) noexcept;
  void check_deadlines(Nanos now) noexcept;
  unsigned finish() noexcept;

  const std::unique_ptr<Poller> poller_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_entries_;
  size_t count_ = 0;
  const std::unique_ptr<std::byte[]> scratch_;
  PendingWork pending_;
  std::vector<Handle> visiting_;  // the list being processed; entries added meanwhile are for the next poll
  std::array<epoll_event, kEvents> events_;
  size_t ready_ = 0;  // number of events_ from the last wait()
  unsigned without_epoll_ = 0;
  uint64_t poll_number_ = 0;
  Nanos next_scan_ = 0;
  Nanos scan_interval_ = kDeadlineScan;
};

uint32_t EpollContext::find_free_entry() {
  if (free_entries_.empty()) {
    free_entries_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
    // The lists never grow later: each holds an endpoint once, and the endpoints that this poll closed.
    for (auto* list : {&pending_.flush, &pending_.receive, &pending_.finish, &visiting_})
      list->reserve(2 * entries_.size());
    free_entries_.reserve(entries_.size());
  }
  return free_entries_.back();
}

void EpollContext::release_entry(uint32_t index) noexcept {
  ++entries_[index].generation;
  free_entries_.push_back(index);
}

Result<Endpoint*> EpollContext::adopt(Socket socket, Handler& handler, const EndpointOptions& options) {
  SLUICE_ASSERT(!socket.has_channel());  // the peer would send its frames through the channel
  const int fd = socket.fd();
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return fail(Errc::kSystem, "cannot make a socket non-blocking: " + error_text(errno));
  }
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  enable_keepalive(fd);
  const uint32_t index = find_free_entry();
  Entry& entry = entries_[index];
  const Handle self{.index = index, .generation = entry.generation};
  if (!poller_->add(fd, self, EPOLLIN)) {
    return fail(Errc::kSystem, "cannot add a socket to the epoll set: " + error_text(errno));
  }
  entry.endpoint =
      std::make_unique<TcpEndpoint>(std::move(socket), self, handler, options, *poller_, pending_);
  free_entries_.pop_back();
  ++count_;
  if (options.frame_deadline > 0) {
    scan_interval_ = std::clamp(options.frame_deadline / 4, kMillisecond, scan_interval_);
  }
  return entry.endpoint.get();
}

Result<Handle> EpollContext::watch(int fd, Watcher& watcher) {
  const uint32_t index = find_free_entry();
  const Handle self{.index = index, .generation = entries_[index].generation};
  if (!poller_->add(fd, self, EPOLLIN))
    return fail(Errc::kSystem, "cannot add a descriptor to the epoll set: " + error_text(errno));
  entries_[index].watcher = &watcher;
  free_entries_.pop_back();
  return self;
}

void EpollContext::unwatch(int fd, Handle watch) noexcept {
  poller_->remove(fd);
  entries_[watch.index].watcher = nullptr;
  release_entry(watch.index);
}

unsigned EpollContext::poll(Nanos now, size_t budget_bytes) noexcept {
  ++poll_number_;
  unsigned done = send(now);
  done += receive(now, budget_bytes);
  if (pending_.timed > 0 && now >= next_scan_) check_deadlines(now);
  done += send(now);  // sends the frames that the callbacks put
  return done + finish();
}

// Loops over lists and entries use an index, because a callback may adopt and reallocate them.
unsigned EpollContext::receive(Nanos now, size_t budget_bytes) noexcept {
  unsigned done = 0;
  if (ready_ == 0 && (pending_.receive.empty() || ++without_epoll_ > kPollsWithoutEpoll)) {
    ready_ = poller_->collect(events_);
    without_epoll_ = 0;
  }
  visiting_.swap(pending_.receive);
  for (size_t i = 0; i < visiting_.size(); ++i) {
    if (const Entry* e = find(visiting_[i]))
      done += e->endpoint->continue_receiving(now, poll_number_, budget_bytes);
  }
  visiting_.clear();
  for (const epoll_event& event : std::span(events_).first(std::exchange(ready_, 0))) {
    const Entry* const e = find(Poller::owner(event));
    if (e == nullptr) continue;
    if (e->endpoint) {
      done += e->endpoint->ready(event.events, now, poll_number_, budget_bytes);
    } else {
      e->watcher->on_readable();
      ++done;
    }
  }
  return done;
}

unsigned EpollContext::send(Nanos now) noexcept {
  unsigned done = 0;
  visiting_.swap(pending_.flush);
  for (size_t i = 0; i < visiting_.size(); ++i) {
    if (const Entry* e = find(visiting_[i])) done += e->endpoint->continue_sending(now);
  }
  visiting_.clear();
  return done;
}

void EpollContext::check_deadlines(Nanos now) noexcept {
  next_scan_ = now + scan_interval_;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].endpoint) entries_[i].endpoint->check_deadline(now, poll_number_);
  }
}

unsigned EpollContext::finish() noexcept {
  unsigned done = 0;
  // A callback may close further endpoints, which this loop finishes too.
  for (; done < pending_.finish.size(); ++done) {
    const Handle h = pending_.finish[done];
    entries_[h.index].endpoint->finish();
    entries_[h.index].endpoint.reset();
    release_entry(h.index);
    --count_;
  }
  pending_.finish.clear();
  return done;
}

void EpollContext::wait(Nanos timeout) noexcept {
  const bool work =
      ready_ > 0 || !pending_.flush.empty() || !pending_.receive.empty() || !pending_.finish.empty();
  if (work) timeout = 0;
  // The owner must call poll() in time for the deadlines.
  if (pending_.timed > 0 && (timeout < 0 || timeout > scan_interval_)) timeout = scan_interval_;
  if (ready_ == 0) ready_ = poller_->wait(events_, timeout);
}

}  // namespace

Result<std::unique_ptr<TcpContext>> make_context() {
  auto poller = Poller::make();
  if (!poller) return tl::unexpected(poller.error());
  return std::make_unique<EpollContext>(std::move(*poller));
}

}  // namespace sluice::transport::tcp
