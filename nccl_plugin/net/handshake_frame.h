// Handshake messages on a socket before it becomes a transport endpoint. Reads exactly one frame and never
// blocks.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/status.h"
#include "wire/messages.h"

namespace sluice::nccl::net {

// The size of the longest frame, PAIR: an address and a text, with their lengths.
inline constexpr size_t kMaxHandshakeFrameBytes =
    wire::kHeaderBytes + 2 + wire::kMaxPairAddress + 2 + wire::kMaxReasonText;

// HandshakeFrame receives one frame.
class HandshakeFrame {
 public:
  // Returns kOk when the frame is complete; kWouldBlock, kClosed or kReset; the error of an invalid header;
  // kBadLength for a frame longer than any handshake frame.
  [[nodiscard]] Status read(int fd) noexcept;
  // After kOk.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).first(filled_); }

 private:
  // Receives until `filled_` is `size`.
  [[nodiscard]] Status fill(int fd, size_t size) noexcept;
  std::array<std::byte, kMaxHandshakeFrameBytes> bytes_{};
  size_t filled_ = 0;
  size_t size_ = 0;  // of the frame; 0 until its header is complete
};

// Decodes a complete frame. Allocates at most as many bytes as the frame has. Sets `out` only on kOk.
template <typename Message>
[[nodiscard]] Status decode_message(std::span<const std::byte> frame, Message& out);
extern template Status decode_message(std::span<const std::byte>, wire::StreamAnswer&);
extern template Status decode_message(std::span<const std::byte>, wire::Pair&);
extern template Status decode_message(std::span<const std::byte>, wire::Paired&);
// Decodes STREAM_OFFER, or STREAM, which has no features.
[[nodiscard]] Status decode_stream_offer(std::span<const std::byte> frame, wire::StreamOffer& out);

// Sends a frame. Only handshake frames are in flight then, and they fit the socket's buffer, so a partial
// send is an error (kReset).
[[nodiscard]] Status send_frame(int fd, std::span<const std::byte> frame) noexcept;

}  // namespace sluice::nccl::net
