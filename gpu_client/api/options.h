// sluice_options as the engine wants them, checked.
#pragma once

#include "core/result.h"
#include "gpu_client/engine/session.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// Defaults, and over them the variables of docs/timeouts.md. A variable that can't be read is left out here
// and reported by read_options, since this one has nobody to tell.
[[nodiscard]] sluice_options default_options() noexcept;

// kInvalidArgument names the option and the value; kSystem when a key or token file can't be read.
[[nodiscard]] Result<engine::SessionOptions> read_options(const sluice_options& options);

}  // namespace sluice::api
