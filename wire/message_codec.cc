#include "wire/message_codec.h"

#include <algorithm>

#include "core/assert.h"
#include "core/crc32c.h"

namespace sluice::wire {

FrameHeader control_header(FrameType type, std::span<const std::byte> body, uint32_t session) noexcept {
  FrameHeader h;
  h.type = type;
  h.flags = kFlagPayloadCrc;
  h.session = session;
  h.length = static_cast<uint32_t>(body.size());
  h.payload_crc = crc32c(body);
  return h;
}

std::vector<std::byte> frame_control(FrameType type, std::span<const std::byte> body, uint32_t session,
                                     uint8_t version) {
  SLUICE_ASSERT(body.size() <= kMaxControlPayload);
  FrameHeader h = control_header(type, body, session);
  h.version = version;
  std::vector<std::byte> out(kHeaderBytes + body.size());
  encode_header(h, {}, HeaderBytes(out.data(), kHeaderBytes));
  std::ranges::copy(body, out.begin() + kHeaderBytes);
  return out;
}

}  // namespace sluice::wire
