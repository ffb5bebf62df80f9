#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/queued_frame.h"
#include "transport/rdma/remote_buffers.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::rdma {

// Outbox holds the accepted puts of an endpoint in order: frames to send, and sent frames whose payload the
// device still reads. Its size is fixed. It copies headers and extensions, never payload.
class Outbox {
 public:
  struct Frame : QueuedFrame {
    FrameId id;
    bool is_data;           // wire::is_data
    uint64_t free_at_send;  // the payload is free once this many sends are done; 0: at once
  };

  // `capacity` counts unsent frames. As many frames again, and kAwaitingCompletion more, may wait for a
  // completion: a peer may answer a frame, and thereby allow the next put, before the device reports the
  // completion.
  static constexpr size_t kAwaitingCompletion = 64;
  explicit Outbox(size_t capacity) : capacity_(capacity), frames_(2 * capacity + kAwaitingCompletion) {}

  // True when every accepted frame was returned by pop_completed() or pop().
  [[nodiscard]] bool empty() const noexcept { return front_ == back_; }
  [[nodiscard]] bool full() const noexcept {
    return back_ - next_ >= capacity_ || back_ - front_ == frames_.size();
  }
  [[nodiscard]] bool has_unsent() const noexcept { return next_ != back_; }

  // Must not be full.
  void push(const wire::FrameHeader& header, std::span<const std::byte> extensions,
            std::span<const std::byte> payload, Cookie cookie) noexcept;

  // The next frame to send if none of its bytes is sent, else null.
  [[nodiscard]] const Frame* next_unstarted() const noexcept {
    return has_unsent() && bytes_sent_ == 0 ? &frames_[index(next_)] : nullptr;
  }
  // Copies the next bytes of one frame to `out` and counts them as sent. Never splits a header and
  // extensions.
  [[nodiscard]] size_t copy_next(std::span<std::byte> out) noexcept;
  // The payload bytes that copy_next() has copied so far.
  [[nodiscard]] uint64_t bytes_copied() const noexcept { return bytes_copied_; }
  // Marks next_unstarted() as sent; the device reads its payload until `sends_done` sends are done.
  void mark_sent(uint64_t sends_done) noexcept;

  // True when pop_completed() returns a frame.
  [[nodiscard]] bool has_completed(uint64_t sends_done) const noexcept {
    return front_ != next_ && frames_[index(front_)].free_at_send <= sends_done;
  }
  // Removes the first frame if it is sent and its payload is free, else null. Valid until the next push().
  [[nodiscard]] const Frame* pop_completed(uint64_t sends_done) noexcept;
  // Removes the first frame, sent or not. Must not be empty.
  [[nodiscard]] const Frame* pop() noexcept;
  // True while the device may read the payload of a sent frame.
  [[nodiscard]] bool device_reads_payload(uint64_t sends_done) const noexcept;

 private:
  [[nodiscard]] size_t index(uint64_t count) const noexcept { return count % frames_.size(); }

  const size_t capacity_;
  std::vector<Frame> frames_;
  uint64_t front_ = 0;  // these three count frames and never wrap
  uint64_t next_ = 0;   // the first frame that is not sent, or sent in part
  uint64_t back_ = 0;
  size_t bytes_sent_ = 0;  // of the frame next_
  uint64_t bytes_copied_ = 0;
};

}  // namespace sluice::transport::rdma
