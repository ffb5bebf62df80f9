// Headers of GRANT and PIECE frames (protocol.md section 13).
#pragma once

#include <cstdint>

#include "wire/frame.h"

namespace sluice::nccl::net {

[[nodiscard]] inline wire::FrameHeader grant_header(uint64_t sequence, uint16_t slot, uint64_t bytes,
                                                    int tag) noexcept {
  wire::FrameHeader h;
  h.type = wire::FrameType::kGrant;
  h.slot = slot;
  h.sequence = sequence;
  h.chunk = bytes;
  h.op_id = static_cast<uint32_t>(tag);
  return h;
}

[[nodiscard]] inline wire::FrameHeader piece_header(uint64_t sequence, uint16_t slot, uint64_t message_bytes,
                                                    uint32_t number, uint32_t piece,
                                                    uint32_t length) noexcept {
  wire::FrameHeader h;
  h.type = wire::FrameType::kPiece;
  h.slot = slot;
  h.sequence = sequence;
  h.chunk = message_bytes;
  h.op_id = number;
  h.fingerprint = piece;
  h.length = length;
  return h;
}

// The fields that these frames do not use must be 0.
[[nodiscard]] inline bool unused_fields_are_zero(const wire::FrameHeader& h) noexcept {
  return (h.flags & wire::kFlagResent) == 0 && h.view_version == 0 && h.session == 0 && h.view_hash == 0 &&
         h.wire_dtype == wire::DType{} && h.acc_dtype == wire::DType{} && h.result_dtype == wire::DType{} &&
         h.op == wire::Op{};
}

}  // namespace sluice::nccl::net
