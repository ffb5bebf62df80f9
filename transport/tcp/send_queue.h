#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/queued_frame.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::tcp {

// SendQueue holds accepted puts in order and tracks how much of them is on the stream. Its size is fixed. It
// copies headers and extensions; payload stays in the caller's memory. Owner thread of the endpoint.
class SendQueue {
 public:
  using Frame = QueuedFrame;

  explicit SendQueue(size_t capacity) : frames_(capacity) {}

  [[nodiscard]] bool empty() const noexcept { return front_ == back_; }
  [[nodiscard]] bool full() const noexcept { return back_ - front_ == frames_.size(); }

  // The queue must not be full.
  void push(const wire::FrameHeader& header, std::span<const std::byte> extensions,
            std::span<const std::byte> payload, Cookie cookie) noexcept {
    frames_[index(back_++)].set(header, extensions, payload, cookie);
  }

  // Fills `out` with the next bytes of the stream, `bytes` in total, and returns the number of entries.
  [[nodiscard]] size_t gather(std::span<iovec> out, size_t& bytes) const noexcept;

  // Records that the stream accepted `n` of the gathered bytes. pop_sent() then returns the completed frames.
  void advance(size_t n) noexcept { sent_ += n; }
  // Removes and returns the front frame if all of it is on the stream, else null. Valid until the next
  // push().
  [[nodiscard]] const Frame* pop_sent() noexcept;
  // Removes and returns the front frame, sent or not. The queue must not be empty.
  [[nodiscard]] const Frame* pop() noexcept { return &frames_[index(front_++)]; }

 private:
  [[nodiscard]] size_t index(uint64_t count) const noexcept { return count % frames_.size(); }

  std::vector<Frame> frames_;
  uint64_t front_ = 0;  // front_ and back_ count all frames ever queued
  uint64_t back_ = 0;
  size_t sent_ = 0;  // bytes of the front frame that are on the stream
};

}  // namespace sluice::transport::tcp
