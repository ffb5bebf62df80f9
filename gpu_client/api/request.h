// Validates the arguments of an operation and converts them for the engine.
#pragma once

#include <cstddef>

#include "gpu_client/engine/data_path/op_table.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// Sets `out` and returns null, or returns the reason for which the arguments are invalid.
[[nodiscard]] const char* read_request(const void* send, void* recv, size_t count, sluice_dtype dtype,
                                       sluice_op op, engine::OpRequest& out) noexcept;

}  // namespace sluice::api
