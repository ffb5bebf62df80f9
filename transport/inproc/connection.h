#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/units.h"
#include "transport/queued_frame.h"

namespace sluice::transport::inproc {

// Signal is the condition that an inproc context sleeps on.
class Signal {
 public:
  // An endpoint of the context has work. Any thread.
  void notify_work() {
    const std::lock_guard lock(mutex_);
    work_ = true;
    changed_.notify_one();
  }

  // Any thread. Only wait() consumes a wake(): one between the owner's last check and its wait() is not lost.
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  }

  // Owner thread, before it processes all work notified so far.
  void clear_work() {
    const std::lock_guard lock(mutex_);
    work_ = false;
  }

  // Owner thread. timeout < 0: no limit.
  void wait(Nanos timeout) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return work_ || woken_; };
    if (timeout < 0) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(timeout), ready);
    }
    woken_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool work_ = false;
  bool woken_ = false;
};

// One direction of a connection. The receiver reads payload in the sender's buffer, under the mutex. Since
// the start: completed <= received <= accepted, and accepted - completed <= frames.size().
struct Pipe {
  explicit Pipe(size_t capacity) : frames(capacity) {}
  [[nodiscard]] QueuedFrame& at(uint64_t count) { return frames[count % frames.size()]; }

  std::vector<QueuedFrame> frames;
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
