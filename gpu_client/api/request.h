// An operation as the C face is asked for it, checked.
#pragma once

#include <cstddef>

#include "gpu_client/engine/op_table.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// nullptr, or in words what no operation may be. `out` is set in the former case.
[[nodiscard]] const char* read_request(const void* send, void* recv, size_t count, sluice_dtype dtype,
                                       sluice_op op, engine::OpRequest& out) noexcept;

}  // namespace sluice::api
