// What the two ends of an inproc connection share: a queue of frames in each direction, under one mutex.
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

struct QueuedFrame {
  std::array<std::byte, wire::kHeaderBytes> header;  // encoded, so that the codec is exercised as on a wire
  std::array<std::byte, kMaxExtensions> extensions;
  const std::byte* payload = nullptr;  // the sender's buffer, read by the receiver under the mutex
  uint32_t payload_bytes = 0;
  uint32_t wire_bytes = 0;  // header and extensions included
  Cookie cookie = 0;
};

// One direction. Counts run up for ever; given_back <= taken <= put, put - given_back <= frames.size().
struct Pipe {
  explicit Pipe(size_t capacity) : frames(capacity) {}
  [[nodiscard]] QueuedFrame& at(uint64_t count) { return frames[count % frames.size()]; }

  std::vector<QueuedFrame> frames;
  uint64_t given_back = 0;  // on_sent() was called
  uint64_t taken = 0;       // copied by the receiver
  uint64_t put = 0;         // accepted
  bool ended = false;       // the sender puts no more; what is there may still be taken
  bool closed = false;      // the sender's endpoint is closed: nothing more may be taken
  bool reset = false;       // and it did not end in order
  std::shared_ptr<Signal> sender;
  std::shared_ptr<Signal> receiver;
};

struct Connection {
  explicit Connection(size_t capacity) : pipes{Pipe(capacity), Pipe(capacity)} {}
  std::mutex mutex;
  std::array<Pipe, 2> pipes;  // pipes[s] carries what side s sends
};

}  // namespace sluice::transport::inproc
