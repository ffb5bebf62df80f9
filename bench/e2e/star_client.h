// One worker's side of a bare TCP star (star_server.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/e2e/star_shape.h"
#include "config/endpoints.h"
#include "core/units.h"
#include "transport/tcp/socket.h"

namespace sluice::bench {

// How a client waits for bytes.
enum class StarWait : uint8_t {
  kSleep,  // at once
  kSpin,   // after having polled for as long as a session that its caller drives does (engine::Progress)
};

class StarClient {
 public:
  // Connects and greets. Throws Failure (kExitUnavailable).
  StarClient(const config::Endpoint& server, const StarShape& shape, StarWait wait);

  // Sends `bytes` (a multiple of the chunk) and receives as many, at most the shape's slots ahead. Throws
  // Failure.
  void exchange(const std::byte* send, std::byte* recv, uint64_t bytes);

 private:
  void wait(bool for_space);

  transport::tcp::Socket socket_;
  const StarShape shape_;
  const StarWait wait_;
  Nanos spin_ = 20 * kMicrosecond;
  Nanos idle_since_ = 0;  // 0: something has moved since
};

}  // namespace sluice::bench
