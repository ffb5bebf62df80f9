// A byte stream in, frames out. Says where the next bytes should be written, so that payload lands in its
// slot without passing through a buffer of ours, and parses what was written: the frame that is under way,
// and as many behind it as the handler foresees. No sockets: whoever has bytes can feed it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::tcp {

class FrameReader {
 public:
  // Payload of one write: its CRC is then computed while the piece is still in the second level cache (1 MiB
  // and more on today's servers, shared with the slots that are being summed). Smaller pieces cost more
  // system calls per byte (64 KiB: +40 %).
  static constexpr size_t kPieceBytes = 256 * kKiB;
  // The stage takes what lies between payloads. After a large frame it asks for the next header and its
  // extensions only: more would be payload that must then be copied. After a small one it asks for all it
  // has: several frames in one system call, for a copy that costs less than the call.
  static constexpr size_t kStageBytes = 4 * kKiB;
  static constexpr size_t kStageBytesLarge = wire::kHeaderBytes + kMaxExtensions;
  static constexpr size_t kSmallPayload = kStageBytes - kStageBytesLarge;
  // Frames that are foreseen at a time: at 16 KiB, the least that chunks of a large operation have, enough
  // for half a piece; each is two blocks of a receive.
  static constexpr unsigned kAhead = 8;
  static constexpr size_t kBlocks = 2 + 2 * kAhead;
  // Holds what one write has put into places that were guessed wrongly.
  static constexpr size_t kScratchBytes = kPieceBytes + (kAhead + 1) * kStageBytes;

  // `scratch`: kScratchBytes, used within consume() only, so all readers of a thread may share it.
  FrameReader(uint32_t max_payload, std::span<std::byte> scratch) noexcept;

  // Where the next bytes of the stream go, in this order. Returns how many are used; their sizes are never 0.
  // Asks `handler` for forecasts. May be called again when nothing came to fill them.
  [[nodiscard]] unsigned buffers(Endpoint& ep, Handler& handler, std::array<iovec, kBlocks>& out) noexcept;

  // The first `n` bytes of buffers() are filled. Calls on_header() and on_frame() of `handler` for `ep`.
  // Anything but kOk is the reason to close: nothing may be fed after it.
  [[nodiscard]] Status consume(size_t n, Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  // For a transport that has its own buffers: bytes of the stream that lie in one, after all that was fed
  // before. A header with its extensions is never cut: kBadLength. Not together with buffers().
  [[nodiscard]] Status feed(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                            EndpointCounters& counters) noexcept;

  // For one that has frames whose payload is somewhere already: `head` is such a frame's header with its
  // extensions, behind all that was fed before. Then, unless stopped, landed() with where it lies.
  [[nodiscard]] Status feed_head(std::span<const std::byte> head, Endpoint& ep, Handler& handler) noexcept;
  // Copies it where on_header() did not name that place.
  [[nodiscard]] Status landed(const std::byte* payload, Endpoint& ep, Handler& handler,
                              EndpointCounters& counters) noexcept;
  // As landed() where on_header() has named, of payload that no processor may touch: its CRC is not looked
  // at.
  [[nodiscard]] Status landed_unseen(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;
  // Of the frame that began last.
  [[nodiscard]] const wire::FrameHeader& header() const noexcept { return header_; }

  // Ends a consume() that is under way (called from one of its callbacks), and every later one.
  void stop() noexcept { stopped_ = true; }

  // True when part of a frame is there and the rest is not.
  [[nodiscard]] bool within_frame() const noexcept { return in_payload_ || staged_ > 0; }

 private:
  // A frame foreseen: its header and extensions are written here, its payload where it is likely to belong.
  struct Ahead {
    std::byte* payload;
    uint32_t length;
    uint32_t head_bytes;
    std::array<std::byte, kStageBytesLarge> head;
  };

  [[nodiscard]] Status take_ahead(unsigned count, size_t& left, Endpoint& ep, Handler& handler,
                                  EndpointCounters& counters) noexcept;
  [[nodiscard]] Status parse_misplaced(unsigned first, unsigned count, size_t used, size_t left, Endpoint& ep,
                                       Handler& handler, EndpointCounters& counters) noexcept;
  [[nodiscard]] Status parse(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                             EndpointCounters& counters) noexcept;
  [[nodiscard]] Status begin_frame(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                                   size_t& used, bool& begun) noexcept;
  void account(size_t n) noexcept;
  [[nodiscard]] Status end_frame(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  const uint32_t max_payload_;
  const std::span<std::byte> scratch_;
  bool stopped_ = false;
  bool decoded_ = false;     // header_ holds what the first bytes that are not parsed yet say
  bool in_payload_ = false;  // on_header() was called, on_frame() not yet
  uint32_t crc_ = 0;         // of the payload up to filled_
  size_t filled_ = 0;
  size_t direct_ = 0;  // bytes of the last buffers() that lie in the payload
  size_t staged_ = 0;  // bytes in stage_, from its beginning; 0 within a payload
  size_t stage_want_ = kStageBytes;
  unsigned ahead_count_ = 0;  // of the last buffers()
  std::byte* payload_ = nullptr;
  wire::FrameHeader header_;
  std::array<std::byte, kMaxExtensions> extensions_;
  alignas(kCacheLine) std::array<std::byte, kStageBytes> stage_;
  std::array<Ahead, kAhead> ahead_;
};

}  // namespace sluice::transport::tcp
