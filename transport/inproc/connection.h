#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/inproc/signal.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::inproc {

// An accepted put of an inproc endpoint.
struct PipeFrame {
  std::array<std::byte, wire::kHeaderBytes> header;  // encoded, so that the codec runs as with a real network
  std::array<std::byte, kMaxExtensionBytes> extensions;
  const std::byte* payload = nullptr;  // the sender's buffer, read by the receiver under the mutex
  uint32_t payload_bytes = 0;
  uint32_t wire_bytes = 0;  // header and extensions included
  Cookie cookie = 0;
};

// One direction of a connection. The counts cover all frames since the start:
// completed <= received <= accepted, and accepted - completed <= frames.size().
struct Pipe {
  explicit Pipe(size_t capacity) : frames(capacity) {}
  [[nodiscard]] PipeFrame& at(uint64_t count) { return frames[count % frames.size()]; }

  std::vector<PipeFrame> frames;
  uint64_t completed = 0;  // frames with on_sent()
  uint64_t received = 0;   // frames copied by the receiver
  uint64_t accepted = 0;   // frames accepted by put()
  bool ended = false;      // the sender puts no more frames; the receiver may still copy the accepted ones
  bool closed = false;     // the sender's endpoint is closed; the receiver must not touch its frames
  bool reset = false;      // closed with kReset
  std::shared_ptr<Signal> sender;
  std::shared_ptr<Signal> receiver;
};

// The state that the two ends of an inproc connection share. `mutex` guards both pipes.
// The state that the two ends of an inproc connection share. `mutex` guards both pipes.
struct Connection {
  explicit Connection(size_t capacity) : pipes{Pipe(capacity), Pipe(capacity)} {}
  std::mutex mutex;
  std::array<Pipe, 2> pipes;  // pipes[s] carries the frames that side s sends
};

}  // namespace sluice::transport::inproc
