// Validates sluice_store_options, and converts them for the store client.
#pragma once

#include "core/result.h"
#include "gpu_client/include/sluice/store.h"
#include "gpu_client/store/store_client.h"

namespace sluice::api {

[[nodiscard]] sluice_store_options default_store_options() noexcept;

// Returns kInvalidArgument with the option's name and value, kUnsupported for options of a newer version, or
// kSystem if a file cannot be read.
[[nodiscard]] Result<store_client::StoreOptions> read_store_options(const sluice_store_options& options);

}  // namespace sluice::api
