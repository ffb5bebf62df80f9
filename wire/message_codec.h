// Encodes and decodes control messages. A message type M has kType, kMayGrow and visit(), which names its
// fields in wire order (wire/body.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/status.h"
#include "wire/body.h"
#include "wire/frame.h"

namespace sluice::wire {

template <typename M>
[[nodiscard]] std::vector<std::byte> encode_body(const M& m) {
  BodyWriter w;
  M::visit(m, w);
  return w.take();
}

// kBadLength when the body is too short, or too long for a message that must not grow. kBadField when a text
// or list exceeds its limit. Writes `out` only on kOk.
template <typename M>
[[nodiscard]] Status decode_body(std::span<const std::byte> in, M& out) {
  M m;
  BodyReader r(in);
  M::visit(m, r);
  if (!r.status().ok()) return r.status();
  if (r.left() != 0 && !M::kMayGrow) return Errc::kBadLength;
  out = std::move(m);
  return Errc::kOk;
}

// Header of a control frame with this body, for a transport that accepts header and payload separately.
[[nodiscard]] FrameHeader control_header(FrameType type, std::span<const std::byte> body,
                                         uint32_t session) noexcept;
// A whole control frame: header with CRCs, then the body.
[[nodiscard]] std::vector<std::byte> frame_control(FrameType type, std::span<const std::byte> body,
                                                   uint32_t session, uint8_t version);

// A whole control frame, ready to send.
template <typename M>
[[nodiscard]] std::vector<std::byte> encode_message(const M& m, uint32_t session = 0,
                                                    uint8_t version = kVersionMax) {
  const auto body = encode_body(m);
  return frame_control(M::kType, body, session, version);
}

}  // namespace sluice::wire
