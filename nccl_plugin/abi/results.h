// Our words for an end as NCCL's, which it treats alike and the application sees.
#pragma once

#include "core/status.h"
#include "nccl_plugin/abi/types.h"

namespace sluice::nccl::abi {

// Warns when it is an error: NCCL itself says only the number.
[[nodiscard]] Result result_of(const char* entry, Status status) noexcept;
// For an end whose reason has been said.
[[nodiscard]] Result quiet_result_of(Status status) noexcept;

}  // namespace sluice::nccl::abi
