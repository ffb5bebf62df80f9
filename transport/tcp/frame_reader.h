// A byte stream in, frames out. Says where the next bytes should be written, so that payload lands in its
// slot without passing through a buffer of ours, and parses what was written. No sockets: whoever has bytes
// can feed it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::tcp {

class FrameReader {
 public:
  // One write goes no further than this into a payload: its CRC is then computed while the piece is still in
  // the second level cache (1 MiB and more on today's servers, shared with the slots that are being summed).
  // Smaller pieces cost more system calls per byte (64 KiB: +40 %).
  static constexpr size_t kPieceBytes = 256 * kKiB;
  // The stage takes what lies between payloads. After a large frame it asks for the next header and its
  // extensions only: more would be payload that must then be copied. After a small one it asks for all it
  // has: several frames in one system call, for a copy that costs less than the call.
  static constexpr size_t kStageBytes = 4 * kKiB;
  static constexpr size_t kStageBytesLarge = wire::kHeaderBytes + kMaxExtensions;
  static constexpr size_t kSmallPayload = kStageBytes - kStageBytesLarge;

  explicit FrameReader(uint32_t max_payload) noexcept : max_payload_(max_payload) {}

  // Where the next bytes of the stream go, in this order. Returns how many of the two are used; their sizes
  // are never 0.
  [[nodiscard]] unsigned buffers(std::array<iovec, 2>& out) noexcept;

  // The first `n` bytes of buffers() are filled. Calls on_header() and on_frame() of `handler` for `ep`.
  // Anything but kOk is the reason to close: nothing may be fed after it.
  [[nodiscard]] Status consume(size_t n, Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  // Ends a consume() that is under way (called from one of its callbacks), and every later one.
  void stop() noexcept { stopped_ = true; }

  // True when part of a frame is there and the rest is not.
  [[nodiscard]] bool within_frame() const noexcept { return in_payload_ || staged_ > 0; }

 private:
  [[nodiscard]] Status begin_frame(Endpoint& ep, Handler& handler, size_t& used, bool& begun) noexcept;
  void account(size_t n) noexcept;
  [[nodiscard]] Status end_frame(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  const uint32_t max_payload_;
  bool stopped_ = false;
  bool decoded_ = false;     // header_ holds what the first bytes of the stage say
  bool in_payload_ = false;  // on_header() was called, on_frame() not yet
  uint32_t crc_ = 0;         // of the payload up to filled_
  size_t filled_ = 0;
  size_t direct_ = 0;  // bytes of the last buffers() that lie in the payload
  size_t staged_ = 0;  // bytes in stage_, from its beginning; 0 within a payload
  size_t stage_want_ = kStageBytes;
  std::byte* payload_ = nullptr;
  wire::FrameHeader header_;
  std::array<std::byte, kMaxExtensions> extensions_;
  alignas(kCacheLine) std::array<std::byte, kStageBytes> stage_;
};

}  // namespace sluice::transport::tcp
