// ControlLoop's accepting of connections, and what it does without free file descriptors.
#include <chrono>
#include <string>
#include <utility>

#include "core/clock.h"
#include "reducer/control/control_loop.h"
#include "transport/tcp/address.h"

namespace sluice::reducer {
namespace {

constexpr auto kAcceptRetry = std::chrono::milliseconds(100);
constexpr Nanos kAcceptLogInterval = 10 * kSecond;

}  // namespace

void ControlLoop::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
    if (is_closed_ || error == asio::error::operation_aborted) return;
    if (!error) {
      run_logged([&] { on_accepted(std::move(socket)); });
      return accept();
    }
    run_logged([&] { on_accept_failed(error); });
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

void ControlLoop::on_accept_failed(const boost::system::error_code& error) {
  const bool exhausted = error == boost::system::errc::too_many_files_open ||
                         error == boost::system::errc::too_many_files_open_in_system;
  const std::string cause =
      exhausted ? "the reducer has no free file descriptor; raise its limit (LimitNOFILE, ulimit -n)"
                : "accept failed: " + error.message();
  if (exhausted) {
    const size_t refused = descriptors_.refuse_waiting(acceptor_.native_handle(), cause);
    counters_.accepted += refused;
    for (size_t i = 0; i < refused; ++i) count_reason(counters_.refused, Errc::kTooMany);
  }
  now_ = monotonic_now();
  if (accept_failure_logged_at_ != 0 && now_ - accept_failure_logged_at_ < kAcceptLogInterval) return;
  accept_failure_logged_at_ = now_;
  log_.error("connections on the data port are refused: " + cause);
}

void ControlLoop::on_accepted(asio::ip::tcp::socket socket) {
  now_ = monotonic_now();
  ++counters_.accepted;
  if (connections_.size() >= options_.max_connections) {
    count_reason(counters_.refused, Errc::kTooMany);
    descriptors_.refuse(transport::tcp::Socket(socket.release()),
                        "the reducer serves its maximum of " + std::to_string(options_.max_connections) +
                            " connections in the handshake and control connections");
    return;
  }
  boost::system::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  std::string peer = transport::tcp::peer_name(socket.native_handle());
  auto connection = std::make_shared<Connection>(*this, std::move(socket), std::move(peer));
  connections_.insert(connection);
  connection->start();
}

}  // namespace sluice::reducer
