// Maps the engine's error codes to the statuses of the C API.
#pragma once

#include "core/status.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

[[nodiscard]] sluice_status to_status(Errc code) noexcept;

}  // namespace sluice::api
