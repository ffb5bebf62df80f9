// Frames for scripts: well formed, or with fields taken from a fuzzer's input and every CRC still right, so
// that what lies behind the CRCs is reached.
#pragma once

#include "tests/fuzz/input.h"
#include "wire/frame.h"

namespace sluice::fuzz {

struct FrameParts {
  wire::FrameHeader header;
  Bytes extensions;  // a multiple of 8
  Bytes payload;
};

// With length, ext_len8 and, where its flag is set, payload_crc computed.
[[nodiscard]] Bytes encode(FrameParts parts);

// The same with a few fields, declared lengths and CRCs as the input says.
[[nodiscard]] Bytes encode_altered(FrameParts parts, Input& in);

}  // namespace sluice::fuzz
