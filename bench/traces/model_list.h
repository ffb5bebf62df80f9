// The table of `sluice bench replay --list`.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::bench {

// Sizes and buckets for gradients of `element_bytes`, with the frameworks' defaults.
[[nodiscard]] std::string model_list(uint64_t element_bytes);

}  // namespace sluice::bench
