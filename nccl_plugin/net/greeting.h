// STREAM and STREAM_ANSWER on a socket that is not a transport's yet: read to their last byte and no further,
// without blocking.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/status.h"
#include "wire/messages.h"

namespace sluice::nccl::net {

inline constexpr size_t kStreamBytes = wire::kHeaderBytes + 22;
inline constexpr size_t kAnswerBytes = wire::kHeaderBytes + 6;

template <size_t N>
class ExactBytes {
 public:
  // kOk when all are there, kWouldBlock, kClosed, kReset.
  [[nodiscard]] Status read(int fd) noexcept;
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::array<std::byte, N> bytes_{};
  size_t filled_ = 0;
};
extern template class ExactBytes<kStreamBytes>;
extern template class ExactBytes<kAnswerBytes>;

// Allocate nothing that a peer chooses the size of. Output on kOk only.
[[nodiscard]] Status decode_stream(std::span<const std::byte> frame, wire::Stream& out);
[[nodiscard]] Status decode_answer(std::span<const std::byte> frame, wire::StreamAnswer& out);

// A first frame on a new connection always fits the socket's buffer: anything but all of it is kReset.
[[nodiscard]] Status send_frame(int fd, std::span<const std::byte> frame) noexcept;

}  // namespace sluice::nccl::net
