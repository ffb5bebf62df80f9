#include "bench/e2e/star/star_client.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bench/e2e/process/exit_codes.h"
#include "core/clock.h"
#include "transport/tcp/blocking_io.h"
#include "transport/tcp/connect.h"

namespace sluice::bench {
namespace {

namespace tcp = transport::tcp;

constexpr Nanos kStarConnectTimeout = 20 * kSecond;
constexpr int kStallMs = 60'000;  // an exchange fails after this time without a transferred byte
// The bounds of engine::ProgressThread. The star is a lower bound only if it waits like the engine.
constexpr Nanos kSpinMin = 2 * kMicrosecond;
constexpr Nanos kSpinMax = 50 * kMicrosecond;

bool should_retry(ssize_t n) {
  return n < 0 && (errno == EAGAIN || errno == EINTR);
}

}  // namespace

StarClient::StarClient(const config::Endpoint& server, const StarShape& shape, StarWait wait)
    : shape_(shape), wait_(wait) {
  const Nanos deadline = monotonic_now() + kStarConnectTimeout;
  auto connected = tcp::connect_to(server.host, server.port, {}, deadline);
  if (!connected) throw Failure(kExitUnavailable, "star: " + connected.error().text);
  socket_ = std::move(*connected);
  if (!tcp::write_all(socket_, encode_handshake(shape), deadline).ok())
    throw Failure(kExitUnavailable, "star: cannot send the handshake: the server closed the connection");
}

void StarClient::exchange(const std::byte* send_from, std::byte* recv_to, uint64_t bytes) {
  const uint64_t window = shape_.slots * shape_.chunk_bytes;
  uint64_t sent = 0;
  uint64_t received = 0;
  while (received < bytes) {
    bool has_progress = false;
    const uint64_t may_send = std::min(bytes, received / shape_.chunk_bytes * shape_.chunk_bytes + window);
    if (sent < may_send) {
      const ssize_t n = send(socket_.fd(), send_from + sent, may_send - sent, MSG_NOSIGNAL);
      if (n < 0 && !should_retry(n))
        throw Failure(kExitFailure, fmt::format("star: send: {}", std::strerror(errno)));
      if (n > 0) sent += static_cast<uint64_t>(n), has_progress = true;
    }
    const ssize_t n = recv(socket_.fd(), recv_to + received, bytes - received, 0);
    if (n == 0 || (n < 0 && !should_retry(n)))
      throw Failure(kExitFailure, "star: the server closed the connection");
    if (n > 0) received += static_cast<uint64_t>(n), has_progress = true;
    if (has_progress) {
      idle_since_ = 0;
    } else {
      wait(sent < may_send);
    }
  }
}

void StarClient::wait(bool for_space) {
  const Nanos now = monotonic_now();
  if (wait_ == StarWait::kSpin) {
    if (idle_since_ == 0) idle_since_ = now;
    if (now - idle_since_ < spin_) return;
  }
  pollfd p{
      .fd = socket_.fd(), .events = static_cast<short>(for_space ? POLLIN | POLLOUT : POLLIN), .revents = 0};
  if (poll(&p, 1, kStallMs) == 0) throw Failure(kExitFailure, "star: no bytes transferred for 60 s");
  const bool short_sleep = monotonic_now() - now < kSpinMax;
  spin_ = std::clamp(short_sleep ? 2 * spin_ : spin_ / 2, kSpinMin, kSpinMax);
  idle_since_ = 0;
}

}  // namespace sluice::bench
