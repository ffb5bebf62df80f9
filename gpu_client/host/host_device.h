// The pipeline's device where there is no GPU: streams are threads, and its memory is the host's own.
#pragma once

#include <memory>

#include "gpu_client/pipeline/device.h"

namespace sluice::host {

// kSystem: no thread.
[[nodiscard]] Result<std::unique_ptr<pipeline::Device>> open_host_device();

}  // namespace sluice::host
