// The one place where the words of the engine become those of the C face.
#pragma once

#include "core/status.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

[[nodiscard]] sluice_status to_status(Errc code) noexcept;

}  // namespace sluice::api
