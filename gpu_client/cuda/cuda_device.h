// The pipeline's device that is a GPU, by the CUDA driver alone.
#pragma once

#include <memory>

#include "gpu_client/pipeline/device.h"

namespace sluice::cuda {

// `ordinal` counts as the driver does (CUDA_VISIBLE_DEVICES); -1: the GPU of the calling thread's current
// context. kUnsupported: no driver, no GPU, or an old one of either; kInvalidArgument: no such GPU; kSystem:
// the GPU refuses. No call changes the calling thread's current context.
//
// What the pipeline gives gather(), scatter() and find_exponents() is memory that look_at() has called
// kDevice: the GPU's own, or managed. Memory of the host is not among it, pinned or pageable: a copy between
// two places of the host waits for its stream on the calling thread, and a kernel reaches pageable memory on
// few machines. Such memory the pipeline reduces where it lies, or refuses.
[[nodiscard]] Result<std::unique_ptr<pipeline::Device>> open_cuda_device(int ordinal);

}  // namespace sluice::cuda
