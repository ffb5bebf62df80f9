// Accepted puts in order, and how far the stream has got with them. Fixed size; headers and extensions are
// kept here, payload stays where the caller has it.
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

class SendQueue {
 public:
  using Frame = QueuedFrame;

  explicit SendQueue(size_t capacity) : frames_(capacity) {}

  [[nodiscard]] bool empty() const noexcept { return front_ == back_; }
  [[nodiscard]] bool full() const noexcept { return back_ - front_ == frames_.size(); }

  // Not when full.
  void push(const wire::FrameHeader& header, std::span<const std::byte> extensions,
            std::span<const std::byte> payload, Cookie cookie) noexcept;

  // The bytes that come next on the stream, as many as `out` has room for. Returns how many entries are
  // filled; `bytes` is their sum.
  [[nodiscard]] size_t gather(std::span<iovec> out, size_t& bytes) const noexcept;

  // `n` bytes of what gather() gave are on the stream; pop_sent() tells which frames that completes.
  void sent(size_t n) noexcept { sent_ += n; }
  // The front when all of its bytes are on the stream, else nullptr. Valid until the next push().
  [[nodiscard]] const Frame* pop_sent() noexcept;
  // The front, sent or not; not when empty.
  [[nodiscard]] const Frame* pop() noexcept { return &frames_[index(front_++)]; }

 private:
  [[nodiscard]] size_t index(uint64_t count) const noexcept { return count % frames_.size(); }

  std::vector<Frame> frames_;
  uint64_t front_ = 0;  // counts run up for ever
  uint64_t back_ = 0;
  size_t sent_ = 0;  // bytes on the stream, from the beginning of the front
};

}  // namespace sluice::transport::tcp
