// Frames for fuzz scripts: valid frames, or frames with fields from the fuzzer's input and correct CRCs, so
// that the checks after the CRCs are reached.
#pragma once

#include "tests/fuzz/input.h"
#include "wire/frame.h"

namespace sluice::fuzz {

struct FrameParts {
  wire::FrameHeader header;
  Bytes extensions;  // a multiple of 8
  Bytes payload;
};

// Computes length, ext_len8 and, if its flag is set, payload_crc.
[[nodiscard]] Bytes encode(FrameParts parts);

// The same, with a few fields, declared lengths and CRCs from the input.
[[nodiscard]] Bytes encode_altered(FrameParts parts, Input& in);

}  // namespace sluice::fuzz
