// Converts the plugin's status codes to NCCL's result codes, which the application sees.
#pragma once

#include "core/status.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::abi {

// Converts and logs an error with the name of the call: NCCL itself logs only the number.
[[nodiscard]] Result log_result(const char* entry, Status status) noexcept;
// Converts a status whose reason is already logged.
[[nodiscard]] Result to_result(Status status) noexcept;

}  // namespace sluice::nccl::abi
