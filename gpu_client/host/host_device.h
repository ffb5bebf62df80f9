// The pipeline's device for machines without a GPU: streams are threads, and device memory is host memory.
#pragma once

#include <memory>

#include "gpu_client/pipeline/device.h"

namespace sluice::host {

// Returns kSystem if a thread cannot be started.
[[nodiscard]] Result<std::unique_ptr<pipeline::Device>> open_host_device();

}  // namespace sluice::host
