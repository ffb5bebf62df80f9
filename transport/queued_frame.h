#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"
#include "wire/frame.h"

namespace sluice::transport {

// An accepted put without on_sent(): the encoded header with extensions, and the caller's payload.
struct QueuedFrame {
  std::array<std::byte, wire::kHeaderBytes + kMaxExtensionBytes> head_area;
  uint32_t head_bytes;
  uint32_t payload_bytes;
  const std::byte* payload;
  Cookie cookie;

  // Accepts the arguments of Endpoint::put().
  void set(const wire::FrameHeader& header, std::span<const std::byte> extensions,
           std::span<const std::byte> body, Cookie id) noexcept {
    wire::encode_header(header, extensions, std::span(head_area).first<wire::kHeaderBytes>());
    std::ranges::copy(extensions, head_area.begin() + wire::kHeaderBytes);
    head_bytes = static_cast<uint32_t>(wire::kHeaderBytes + extensions.size());
    payload_bytes = header.length;
    payload = body.data();
    cookie = id;
  }
  [[nodiscard]] std::span<const std::byte> head() const noexcept {
    return std::span(head_area).first(head_bytes);
  }
  [[nodiscard]] std::span<const std::byte> body() const noexcept { return {payload, payload_bytes}; }
  [[nodiscard]] size_t bytes() const noexcept { return size_t{head_bytes} + payload_bytes; }
};

}  // namespace sluice::transport
