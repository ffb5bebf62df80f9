// Frames for fuzz scripts: valid frames, or frames with fields from the fuzzer's input and correct CRCs, so
// that the checks after the CRCs are reached.
#pragma once

#include "tests/fuzz/input.h"
#include "wire/messages.h"

namespace sluice::fuzz {

struct FrameParts {
  wire::FrameHeader header;
  Bytes extensions;  // a multiple of 8
  Bytes payload;
};

template <typename M>
[[nodiscard]] FrameParts control_frame(const M& message, uint32_t session) {
  FrameParts parts;
  parts.header.type = M::kType;
  parts.header.flags = wire::kFlagPayloadCrc;
  parts.header.session = session;
  parts.payload = wire::encode_body(message);
  return parts;
}

// A contribution to an allreduce, without elements. `random_bits` select dtype and op.
[[nodiscard]] FrameParts contribution_frame(uint32_t session, uint64_t random_bits);

// Sets the payload of a contribution, `count` elements that `random_bits` and the rank determine, and the
// fields for it. Receivers accept it. Blocks of zeros are mostly the same on all ranks.
void set_elements(FrameParts& parts, size_t count, uint64_t random_bits, uint32_t rank);
// The most elements that a contribution may have in a session with slots of this size.
[[nodiscard]] size_t most_elements(wire::DType t, size_t slot_bytes);

// Encodes the payload (protocol.md section 9, "Sparse payloads"). EXPANDED becomes the last extension.
void make_sparse(FrameParts& parts);
// The same, if the payload becomes shorter.
void make_sparse_if_shorter(FrameParts& parts);

// Computes length, ext_len8 and, if its flag is set, payload_crc.
[[nodiscard]] Bytes encode(FrameParts parts);

// The same, with a few fields, declared lengths and CRCs from the input.
[[nodiscard]] Bytes encode_altered(FrameParts parts, Input& in);

}  // namespace sluice::fuzz
