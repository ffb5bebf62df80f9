// Accepted puts in order: what is still to be sent of them, and what was sent and is kept until the device
// has done with its payload. Fixed size; headers and extensions are kept here, payload stays where the caller
// has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/queued_frame.h"
#include "transport/rdma/loans.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::rdma {

class Outbox {
 public:
  struct Frame : QueuedFrame {
    FrameName name;
    bool data;             // wire::is_data
    uint64_t let_go_when;  // so many sends are done; 0: at once
  };

  // `capacity`: frames that are not sent. Those that wait for no more than the device's word have room of
  // their own: a peer may have answered one, and so made room for the next, before that word comes.
  static constexpr size_t kWaiting = 64;
  explicit Outbox(size_t capacity) : capacity_(capacity), frames_(2 * capacity + kWaiting) {}

  // Nothing is accepted and not given back.
  [[nodiscard]] bool empty() const noexcept { return front_ == back_; }
  [[nodiscard]] bool full() const noexcept {
    return back_ - next_ >= capacity_ || back_ - front_ == frames_.size();
  }
  // Some bytes are still to be sent.
  [[nodiscard]] bool unsent() const noexcept { return next_ != back_; }

  // Not when full.
  void push(const wire::FrameHeader& header, std::span<const std::byte> extensions,
            std::span<const std::byte> payload, Cookie cookie) noexcept;

  // The frame whose first byte comes next, or null.
  [[nodiscard]] const Frame* at_start() const noexcept {
    return unsent() && begun_ == 0 ? &frames_[index(next_)] : nullptr;
  }
  // The bytes that come next of one frame, copied, as many as `room` has place for without cutting a header
  // from its extensions. They count as sent.
  [[nodiscard]] size_t take(std::span<std::byte> room) noexcept;
  // Payload bytes that take() has copied, ever.
  [[nodiscard]] uint64_t bytes_copied() const noexcept { return bytes_copied_; }
  // at_start() is sent whole; its payload is the device's until so many sends are done.
  void sent_until(uint64_t sends_done) noexcept;

  // pop_sent() has something.
  [[nodiscard]] bool can_give_back(uint64_t sends_done) const noexcept {
    return front_ != next_ && frames_[index(front_)].let_go_when <= sends_done;
  }
  // The front, when it is sent and its payload let go of with `sends_done`; else null. Valid until the next
  // push().
  [[nodiscard]] const Frame* pop_sent(uint64_t sends_done) noexcept;
  // The front, sent or not; not when empty.
  [[nodiscard]] const Frame* pop() noexcept;
  // The device may still read payload of a frame that was sent.
  [[nodiscard]] bool reads_payload(uint64_t sends_done) const noexcept;

 private:
  [[nodiscard]] size_t index(uint64_t count) const noexcept { return count % frames_.size(); }

  const size_t capacity_;
  std::vector<Frame> frames_;
  uint64_t front_ = 0;  // counts run up for ever
  uint64_t next_ = 0;   // not sent, or in part
  uint64_t back_ = 0;
  size_t begun_ = 0;  // bytes of next_ that are sent
  uint64_t bytes_copied_ = 0;
};

}  // namespace sluice::transport::rdma
