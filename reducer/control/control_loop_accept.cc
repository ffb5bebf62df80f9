// ControlLoop's accepting of connections, and what it does without free file descriptors.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "core/clock.h"
#include "reducer/control/control_loop.h"
#include "transport/tcp/address.h"
#include "wire/handshake.h"

namespace sluice::reducer {
namespace {

constexpr auto kAcceptRetry = std::chrono::milliseconds(100);
constexpr Nanos kAcceptLogInterval = 10 * kSecond;
constexpr Nanos kDisplacedLogInterval = 60 * kSecond;
constexpr size_t kClosedPerTrim = 256;
constexpr Nanos kTrimInterval = 10 * kSecond;
constexpr size_t kDeadlinesPerTick = 1024;  // connections that are checked; the next tick goes on

// A reducer in a worker's process uses descriptors of the job. A rank has a control connection, one in which
// ranks meet, and lane connections in the handshake; each may come again while the broken one is still there.
constexpr size_t kConnectionsOfRank = 4;
constexpr size_t kUnprovedOfRank = 2;
constexpr size_t kSpareConnections = 32;
// Without them, jobs could keep the reducers from each other, and so stop the models of all.
constexpr size_t kConnectionsOfReducers = 256;

std::string full_text(size_t limit) {
  return "the reducer serves its maximum of " + std::to_string(limit) +
         " connections in the handshake and control connections";
}

}  // namespace

void ControlLoop::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
    if (is_closed_ || error == asio::error::operation_aborted) return;
    if (!error) {
      run_logged([&] { on_accepted(std::move(socket)); });
      return accept();
    }
    bool has_room = false;
    run_logged([&] { has_room = on_accept_failed(error); });
    if (has_room) return accept();
    retry_accept();
  });
}

// Retrying at once would spin.
void ControlLoop::retry_accept() {
  accept_timer_.expires_after(kAcceptRetry);
  accept_timer_.async_wait([this](const boost::system::error_code& e) {
    if (e) return;
    run_logged([this] { descriptors_.release(); });
    accept();
  });
}

bool ControlLoop::on_accept_failed(const boost::system::error_code& error) {
  now_ = monotonic_now();
  const bool exhausted = error == boost::system::errc::too_many_files_open ||
                         error == boost::system::errc::too_many_files_open_in_system;
  const std::string cause =
      exhausted ? "the reducer has no free file descriptor; raise its limit (LimitNOFILE, ulimit -n)"
                : "accept failed: " + error.message();
  if (exhausted) {
    if (const auto silent = unproved_.oldest_silent()) {
      displace(silent, cause);
      return true;
    }
    const size_t refused = descriptors_.refuse_waiting(acceptor_.native_handle(), cause);
    counters_.accepted += refused;
    for (size_t i = 0; i < refused; ++i) count_reason(counters_.refused, Errc::kTooMany);
  }
  if (accept_failure_logged_at_ != 0 && now_ - accept_failure_logged_at_ < kAcceptLogInterval) return false;
  accept_failure_logged_at_ = now_;
  log_.error("connections on the data port are refused: " + cause);
  return false;
}

ControlLoop::ConnectionLimits ControlLoop::connection_limits() const {
  ConnectionLimits limits{.all = options_.max_connections, .unproved = options_.max_unproved_connections};
  if (options_.only_expected_sessions) {
    const size_t ranks = admission_.expected_ranks();
    limits.all = std::min(limits.all, kSpareConnections + kConnectionsOfRank * ranks);
    limits.unproved = std::min(limits.unproved, kSpareConnections + kUnprovedOfRank * ranks);
  }
  limits.unproved = std::min(limits.unproved, limits.all);
  limits.with_reducers = limits.all + (options_.on_store_connection ? kConnectionsOfReducers : 0);
  return limits;
}

std::optional<Error> ControlLoop::check_connections(const std::string& job) const {
  const size_t limit = connection_limits().all;
  if (connection_count() <= limit || job == wire::kReducerJob) return std::nullopt;
  return Error{Errc::kTooMany, full_text(limit)};
}

void ControlLoop::displace(const std::shared_ptr<Connection>& connection, const std::string& why) {
  ++displaced_;
  if (displaced_logged_at_ == 0 || now_ - displaced_logged_at_ >= kDisplacedLogInterval) {
    displaced_logged_at_ = now_;
    const uint64_t count = std::exchange(displaced_, 0);
    log_.warn("closed " + std::to_string(count) + (count == 1 ? " connection" : " connections") +
              " that had proved nothing for newer ones, the last from " + connection->peer() + ": " + why);
  }
  connection->displace("closed for a newer connection, since it has proved nothing yet: " + why);
  forget_closed();
}

void ControlLoop::note_closed(FrameConnection& connection) noexcept {
  deadlines_.remove(&connection);
  closed_.push_back(connection.shared_from_this());
}

void ControlLoop::forget_closed() {
  for (const auto& connection : closed_) connections_.erase(std::static_pointer_cast<Connection>(connection));
  closed_since_trim_ += closed_.size();
  closed_.clear();
}

// The C library keeps what thousands of connections have freed. In a worker's process the heap is the job's.
void ControlLoop::trim_heap() {
  if (options_.hosted || closed_since_trim_ < kClosedPerTrim || now_ - trimmed_at_ < kTrimInterval) return;
  closed_since_trim_ = 0;
  trimmed_at_ = now_;
#ifdef __GLIBC__
  ::malloc_trim(kMiB);
#endif
}

void ControlLoop::check_deadlines() {
  for (size_t checked = 0; checked < kDeadlinesPerTick; ++checked) {
    const auto due = deadlines_.first(now_);
    if (!due) return;
    const auto connection = (*due)->shared_from_this();
    connection->check_deadline(now_);
    if (connection->is_closed()) continue;
    if (const Nanos next = connection->next_check(); next != 0) {
      deadlines_.set(connection.get(), std::max(next, now_ + 1));
    } else {
      deadlines_.remove(connection.get());
    }
  }
}

void ControlLoop::on_accepted(asio::ip::tcp::socket socket) {
  now_ = monotonic_now();
  ++counters_.accepted;
  const ConnectionLimits limits = connection_limits();
  while (unproved_.size() >= limits.unproved && unproved_.size() > 0) {
    displace(unproved_.first_to_go(limits.unproved),
             "the reducer serves at most " + std::to_string(limits.unproved) + " of them");
  }
  if (connection_count() >= limits.all) {
    const bool is_full = connection_count() >= limits.with_reducers;
    if (const auto unproved = is_full ? unproved_.first_to_go(limits.unproved) : unproved_.oldest_silent()) {
      displace(unproved, full_text(limits.all));
    } else if (is_full) {
      count_reason(counters_.refused, Errc::kTooMany);
      return descriptors_.refuse(transport::tcp::Socket(socket.release()), full_text(limits.all));
    }
  }
  boost::system::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  std::string peer = transport::tcp::peer_name(socket.native_handle());
  auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(peer));
  connections_.insert(connection);
  if (closed_.capacity() < connections_.size()) closed_.reserve(2 * connections_.size());
  connection->start();
}

}  // namespace sluice::reducer
