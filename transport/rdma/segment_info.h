#pragma once

#include <cstdint>

namespace sluice::transport::rdma {

// SegmentInfo describes one segment. It travels in the immediate data of the send, together with the credits
// that the sender returns (protocol.md section 15).
struct SegmentInfo {
  bool placed = false;           // header of one frame, whose payload was written to its advertised buffer
  bool recall = false;           // asks the peer to give up all buffers advertised to it
  bool recalled = false;         // answers a recall: this side writes to none of those buffers any more
  uint8_t buffers_in_front = 0;  // advertised buffers before the other bytes (remote_buffers.h)
};

inline constexpr uint8_t kMaxBuffersPerSegment = 8;

// The immediate data of a send.
inline constexpr uint32_t kImmediateEnd = 1U << 31;  // the sender sends no more
inline constexpr uint32_t kImmediateProbe = 1U << 30;
inline constexpr uint32_t kImmediatePlaced = 1U << 29;
inline constexpr uint32_t kImmediateRecall = 1U << 28;
inline constexpr uint32_t kImmediateRecalled = 1U << 27;
inline constexpr uint32_t kImmediateBuffersShift = 16;
inline constexpr uint32_t kImmediateBuffersMask = 0xf;
inline constexpr uint32_t kImmediateCreditMask = 0xffff;
static_assert(kMaxBuffersPerSegment <= kImmediateBuffersMask);

[[nodiscard]] constexpr uint32_t encode_immediate(const SegmentInfo& info) noexcept {
  return (info.placed ? kImmediatePlaced : 0) | (info.recall ? kImmediateRecall : 0) |
         (info.recalled ? kImmediateRecalled : 0) | uint32_t{info.buffers_in_front} << kImmediateBuffersShift;
}

[[nodiscard]] constexpr SegmentInfo decode_immediate(uint32_t immediate) noexcept {
  return {
      .placed = (immediate & kImmediatePlaced) != 0,
      .recall = (immediate & kImmediateRecall) != 0,
      .recalled = (immediate & kImmediateRecalled) != 0,
      .buffers_in_front = static_cast<uint8_t>(immediate >> kImmediateBuffersShift & kImmediateBuffersMask)};
}

}  // namespace sluice::transport::rdma
