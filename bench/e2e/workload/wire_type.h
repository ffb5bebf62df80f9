// The values of --wire: the types in which sums and averages of f32 travel.
#pragma once

#include <cstdint>
#include <string>

#include "gpu_client/pipeline/cast.h"

namespace sluice::bench {

// Throws Failure(kExitUsage) for a text that is not "given", "bf16", "f16", "mxfp8" or "int8".
[[nodiscard]] pipeline::WireCast parse_wire(const std::string& text);
[[nodiscard]] const char* wire_name(pipeline::WireCast cast) noexcept;
// The value of sluice_stream_options.wire_dtype.
[[nodiscard]] int32_t wire_dtype_of(pipeline::WireCast cast) noexcept;

}  // namespace sluice::bench
