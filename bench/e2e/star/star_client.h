// Class StarClient is the worker side of a bare TCP star (star_server.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/star/star_shape.h"
#include "config/endpoints.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {

// How a client waits for the socket.
enum class StarWait : uint8_t {
  kSleep,  // sleeps in poll() immediately
  kSpin,   // spins first, as long as a session with caller-driven progress does (engine::ProgressThread)
};

class StarClient {
 public:
  // Connects and sends the handshake. Throws Failure(kExitUnavailable).
  StarClient(const config::Endpoint& server, const StarShape& shape, StarWait wait);

  // Sends `bytes`, a multiple of the chunk size, and receives as many. Sends at most `slots` chunks ahead of
  // the received bytes. Throws Failure.
  void exchange(const std::byte* send, std::byte* recv, uint64_t bytes);

 private:
  void wait(bool for_space);

  transport::tcp::Socket socket_;
  const StarShape shape_;
  const StarWait wait_;
  Nanos spin_ = 20 * kMicrosecond;
  Nanos idle_since_ = 0;  // 0: the last loop transferred bytes
};

}  // namespace sluice::bench
