// The header of a safetensors file (https://huggingface.co/docs/safetensors, section "Format"):
//
//   8 bytes  N, little-endian
//   N bytes  JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...,
//            "__metadata__": {"KEY": "TEXT", ...}}
//   then the data; offsets count from here. The tensors cover it without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace sluice::store {

inline constexpr size_t kMaxSafetensorsHeader = 100'000'000;  // the limit of the PyPI package

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "F16", "BF16" or another of the format
  std::vector<uint64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of `begin`
  std::map<std::string, std::string> metadata;
};

// The 8 bytes and the JSON, padded with spaces to a multiple of 8, so that the data is aligned.
[[nodiscard]] std::string safetensors_header_text(const SafetensorsHeader& header);

// Parses the JSON, and checks that the tensors cover `data_bytes` bytes without gap and overlap. For a known
// dtype it compares the bytes with the shape. Errors name the tensor and both values.
[[nodiscard]] Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

}  // namespace sluice::store
