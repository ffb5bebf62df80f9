// The words on a socket that is not a transport's yet: frames read to their last byte and no further, without
// blocking.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/status.h"
#include "wire/messages.h"

namespace sluice::nccl::net {

// Of the longest, PAIR: a list and a text, with their counts.
inline constexpr size_t kMostWordBytes = wire::kHeaderBytes + 2 + wire::kMaxPairAddress + 2 + wire::kMaxWhy;

// One frame.
class FrameBytes {
 public:
  // kOk when it is there whole, kWouldBlock, kClosed, kReset; the code of a header that is none, kBadLength
  // of one that says more than any word has.
  [[nodiscard]] Status read(int fd) noexcept;
  // After kOk.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return std::span(bytes_).first(filled_); }

 private:
  // Until `filled_` is `size`.
  [[nodiscard]] Status fill(int fd, size_t size) noexcept;
  std::array<std::byte, kMostWordBytes> bytes_{};
  size_t filled_ = 0;
  size_t size_ = 0;  // of the frame; 0 before its header is there
};

// Of a whole frame. Allocates no more than a word has bytes. Output on kOk only.
template <typename Message>
[[nodiscard]] Status decode_word(std::span<const std::byte> frame, Message& out);
extern template Status decode_word(std::span<const std::byte>, wire::StreamAnswer&);
extern template Status decode_word(std::span<const std::byte>, wire::Pair&);
extern template Status decode_word(std::span<const std::byte>, wire::Paired&);
// STREAM_OFFER, or STREAM: then without features.
[[nodiscard]] Status decode_opening(std::span<const std::byte> frame, wire::StreamOffer& out);

// Words alone are on their way at that time, and always fit the socket's buffer: anything but all of it is
// kReset.
[[nodiscard]] Status send_frame(int fd, std::span<const std::byte> frame) noexcept;

}  // namespace sluice::nccl::net
