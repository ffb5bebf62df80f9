#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/status.h"

namespace sluice::transport::rdma {

inline constexpr uint32_t kMaxAdvertisedBuffers = 64;

// Identifies a data frame of a session. View versions of a session only grow.
struct FrameId {
  uint16_t view_version = 0;
  uint64_t sequence = 0;
  friend bool operator==(const FrameId&, const FrameId&) = default;
  friend bool operator<(const FrameId& a, const FrameId& b) noexcept {
    return std::tie(a.view_version, a.sequence) < std::tie(b.view_version, b.sequence);
  }
};

// A buffer that one end advertises for the payload of one frame.
struct AdvertisedBuffer {
  FrameId frame;
  uint64_t address = 0;  // in the memory of the advertising end
  uint32_t key = 0;      // of the memory region
  uint32_t capacity = 0;
  bool in_place_only = false;  // the payload must be written here, however short it is
};

// The encoding in a segment, little endian: address u64, sequence u64, key u32, capacity u32, view version
// u16, flags u16 (bit 0: in_place_only), and 4 zero bytes.
inline constexpr size_t kAdvertisedBufferBytes = 32;
void encode(const AdvertisedBuffer& buffer, std::span<std::byte, kAdvertisedBufferBytes> out) noexcept;
[[nodiscard]] AdvertisedBuffer decode_advertised_buffer(
    std::span<const std::byte, kAdvertisedBufferBytes> in) noexcept;

// RemoteBuffers holds the advertised buffers of one direction of a queue pair (Handler::advertise), in the
// order of their frames. Both ends hold the same buffers: a buffer ends with its frame or with a later frame.
// So neither end has to report the end of a buffer, and a peer never holds more than kMaxAdvertisedBuffers.
class RemoteBuffers {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == last_; }
  [[nodiscard]] bool full() const noexcept { return last_ - first_ == kMaxAdvertisedBuffers; }
  // Adds a buffer. False: there are too many, or the frame is not after the frame of the buffer before. A
  // buffer whose frame crossed the advertisement on the network has ended already and is not kept; the peer
  // has seen that frame and does not count the buffer either.
  [[nodiscard]] bool push(const AdvertisedBuffer& buffer) noexcept {
    if (newest_ && !(*newest_ < buffer.frame)) return false;
    if (last_consumed_ && !(*last_consumed_ < buffer.frame)) return true;
    if (full()) return false;
    newest_ = buffer.frame;
    ring_[last_++ % kMaxAdvertisedBuffers] = buffer;
    return true;
  }
  // Ends the buffers of this frame and of all earlier frames. Returns the buffer of this frame, if any.
  [[nodiscard]] std::optional<AdvertisedBuffer> consume(const FrameId& frame) noexcept {
    if (find(frame) == nullptr) {
      last_consumed_ = last_consumed_ ? std::max(*last_consumed_, frame) : frame;
      return std::nullopt;
    }
    last_consumed_ = frame;
    return ring_[first_++ % kMaxAdvertisedBuffers];
  }
  // Returns the buffer of this frame or null. Ends the buffers of earlier frames.
  [[nodiscard]] const AdvertisedBuffer* find(const FrameId& frame) noexcept {
    while (!empty() && front().frame < frame) ++first_;
    return !empty() && front().frame == frame ? &front() : nullptr;
  }
  void clear() noexcept {
    first_ = last_;
    newest_.reset();
  }

  // ---- for the advertising end: which buffers were sent to the peer ----
  [[nodiscard]] const AdvertisedBuffer* next_unsent() noexcept {
    if (sent_ < first_) sent_ = first_;
    return sent_ != last_ ? &ring_[sent_ % kMaxAdvertisedBuffers] : nullptr;
  }
  void mark_sent() noexcept { ++sent_; }
  void drop_unsent() noexcept {
    if (next_unsent() == nullptr) return;
    last_ = sent_;
    newest_.reset();
    if (has_sent()) newest_ = ring_[(sent_ - 1) % kMaxAdvertisedBuffers].frame;
  }
  // True while the peer holds a buffer.
  [[nodiscard]] bool has_sent() const noexcept { return sent_ > first_; }

 private:
  [[nodiscard]] const AdvertisedBuffer& front() const noexcept {
    return ring_[first_ % kMaxAdvertisedBuffers];
  }

  std::array<AdvertisedBuffer, kMaxAdvertisedBuffers> ring_;
  uint64_t first_ = 0;  // these three count buffers and never wrap
  uint64_t last_ = 0;
  uint64_t sent_ = 0;
  std::optional<FrameId> newest_;         // of the pushed buffers
  std::optional<FrameId> last_consumed_;  // the latest frame of consume()
};

}  // namespace sluice::transport::rdma
