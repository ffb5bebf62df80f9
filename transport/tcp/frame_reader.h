#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport::tcp {

// FrameReader turns a byte stream into frames for a Handler. It tells the caller where to write the next
// bytes, so that payload arrives in its slot without an intermediate buffer, and then parses these bytes. One
// read covers the current frame and the following frames that the handler predicts. FrameReader does no I/O.
class FrameReader {
 public:
  // Maximum payload bytes of one read. The CRC of these bytes is computed while they are still in the
  // second-level cache (1 MiB or more on today's servers, shared with the slots that are being summed).
  // Shorter reads cost more system calls per byte (64 KiB: +40 %).
  static constexpr size_t kMaxReadBytes = 256 * kKiB;
  // The stage receives the bytes between payloads. After a large frame it requests the next header and its
  // extensions only, because further bytes would be payload that must be copied. After a small frame it
  // requests its whole size: the copy of several small frames costs less than a system call for each.
  static constexpr size_t kStageBytes = 4 * kKiB;
  static constexpr size_t kStageBytesLarge = wire::kHeaderBytes + kMaxExtensionBytes;
  static constexpr size_t kSmallPayload = kStageBytes - kStageBytesLarge;
  // Maximum number of predicted frames of one read. At 16 KiB each, the smallest chunk of a large operation,
  // they fill half of kMaxReadBytes. Each predicted frame is two blocks of a receive.
  static constexpr unsigned kMaxPredicted = 8;
  static constexpr size_t kBlocks = 2 + 2 * kMaxPredicted;
  // Space for all bytes of one read whose prediction was wrong.
  static constexpr size_t kScratchBytes = kMaxReadBytes + (kMaxPredicted + 1) * kStageBytes;

  // `scratch` has kScratchBytes. Only consume() uses it, so all readers of a thread may share it.
  FrameReader(uint32_t max_payload, std::span<std::byte> scratch) noexcept;

  // Fills `out` with the buffers for the next bytes of the stream, in order, and returns their number. No
  // buffer is empty. Calls expected_frame() of `handler`. May be called again when no bytes arrived.
  [[nodiscard]] unsigned buffers(Endpoint& ep, Handler& handler, std::array<iovec, kBlocks>& out) noexcept;

  // Parses the first `n` bytes of the buffers, which the caller has filled. Calls on_header() and on_frame()
  // of `handler` for `ep`. Any status but kOk is the reason to close; no further call is allowed then.
  [[nodiscard]] Status consume(size_t n, Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  // Parses bytes that lie in a buffer of the transport. They follow all bytes fed before. kBadLength when
  // they end within a header or its extensions. Must not be combined with buffers().
  [[nodiscard]] Status feed(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                            EndpointCounters& counters) noexcept;

  // Parses the header and extensions of a frame whose payload is already in memory; it follows all bytes fed
  // before. Unless the reader was stopped, call complete_placed() or complete_placed_unread() then.
  [[nodiscard]] Status feed_placed_header(std::span<const std::byte> head, Endpoint& ep,
                                          Handler& handler) noexcept;
  // Completes the frame; copies the payload if on_header() returned other memory.
  [[nodiscard]] Status complete_placed(const std::byte* payload, Endpoint& ep, Handler& handler,
                                       EndpointCounters& counters) noexcept;
  // Completes the frame whose payload is in the memory of on_header(), without reading it: no CRC check.
  [[nodiscard]] Status complete_placed_unread(Endpoint& ep, Handler& handler,
                                              EndpointCounters& counters) noexcept;
  // The header of the last started frame.
  [[nodiscard]] const wire::FrameHeader& header() const noexcept { return header_; }

  // Ends the current consume(), from one of its callbacks, and makes later calls do nothing.
  void stop() noexcept { stopped_ = true; }

  // True when only a part of a frame has arrived.
  [[nodiscard]] bool within_frame() const noexcept { return in_payload_ || staged_ > 0; }

 private:
  // A predicted frame: `head` receives its header and extensions; the payload goes to its expected memory.
  struct PredictedFrame {
    std::byte* payload;
    uint32_t length;
    uint32_t head_bytes;
    std::array<std::byte, kStageBytesLarge> head;
  };

  [[nodiscard]] Status consume_predicted(unsigned count, size_t& left, Endpoint& ep, Handler& handler,
                                         EndpointCounters& counters) noexcept;
  [[nodiscard]] Status parse_misplaced(unsigned first, unsigned count, size_t used, size_t left, Endpoint& ep,
                                       Handler& handler, EndpointCounters& counters) noexcept;
  [[nodiscard]] Status parse(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                             EndpointCounters& counters) noexcept;
  [[nodiscard]] Status begin_frame(std::span<const std::byte> bytes, Endpoint& ep, Handler& handler,
                                   size_t& used, bool& begun) noexcept;
  void add_payload_bytes(size_t n) noexcept;
  [[nodiscard]] Status end_frame(Endpoint& ep, Handler& handler, EndpointCounters& counters) noexcept;

  const uint32_t max_payload_;
  const std::span<std::byte> scratch_;
  bool stopped_ = false;
  bool decoded_ = false;     // header_ is decoded from the first bytes not yet parsed
  bool in_payload_ = false;  // on_header() was called, on_frame() not yet
  uint32_t crc_ = 0;         // of the payload up to filled_
  size_t filled_ = 0;
  size_t direct_ = 0;  // payload bytes of the current frame in the last buffers()
  size_t staged_ = 0;  // bytes at the start of stage_; 0 within a payload
  size_t stage_want_ = kStageBytes;
  unsigned predicted_count_ = 0;  // in the last buffers()
  std::byte* payload_ = nullptr;
  wire::FrameHeader header_;
  std::array<std::byte, kMaxExtensionBytes> extensions_;
  alignas(kCacheLine) std::array<std::byte, kStageBytes> stage_;
  std::array<PredictedFrame, kMaxPredicted> predicted_;
};

}  // namespace sluice::transport::tcp
