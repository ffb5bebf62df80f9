#pragma once

#include <optional>

#include "tests/fuzz/input.h"
#include "wire/dtype.h"

namespace sluice::fuzz {

// The content of payloads, written from protocol.md without optimization. Tests compare wire/payload with it.

// Section 9, "Sparse payloads": `payload` without zero blocks, then the bitmap. It may be the longer one.
[[nodiscard]] Bytes sparse_payload(std::span<const std::byte> payload, wire::DType t);
// The `expanded` bytes of a sparse payload. Nothing if the bitmap disagrees with the lengths.
[[nodiscard]] std::optional<Bytes> expand_payload(std::span<const std::byte> payload, size_t expanded,
                                                  wire::DType t);

// Section 6, "Blocks": whether receivers accept this payload of whole elements.
[[nodiscard]] bool has_valid_elements(std::span<const std::byte> payload, wire::DType t);
// The values of accepted blocks.
[[nodiscard]] std::vector<float> values_of_blocks(std::span<const std::byte> blocks, wire::DType t);

}  // namespace sluice::fuzz
