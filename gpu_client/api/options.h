// Validates sluice_options and converts them for the engine.
#pragma once

#include "core/result.h"
#include "gpu_client/engine/session/session.h"
#include "gpu_client/include/sluice/sluice.h"

namespace sluice::api {

// Returns the defaults, overridden by the variables of docs/reference/configuration.md. Ignores a malformed
// variable, because it cannot return an error; read_options() reports it.
[[nodiscard]] sluice_options default_options() noexcept;

// Returns kInvalidArgument with the option's name and value, or kSystem if a key or token file cannot be
// read.
[[nodiscard]] Result<engine::SessionOptions> read_options(const sluice_options& options);

}  // namespace sluice::api
