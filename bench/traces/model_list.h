// Formats the table of `sluice bench replay --list`.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::bench {

// Returns sizes and buckets of all models for gradients of `element_bytes`, with the defaults of the
// frameworks.
[[nodiscard]] std::string model_list(uint64_t element_bytes);

}  // namespace sluice::bench
