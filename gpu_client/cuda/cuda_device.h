// The pipeline's device for NVIDIA GPUs. It uses the CUDA driver API only.
#pragma once

#include <memory>

#include "gpu_client/pipeline/device.h"

namespace sluice::cuda {

// `ordinal` is the driver's (CUDA_VISIBLE_DEVICES); -1 means the GPU of the calling thread's current context.
// Returns kUnsupported without a driver or GPU, or if either is too old; kInvalidArgument if there is no such
// GPU; kSystem if the driver refuses a call. No call changes the calling thread's current context.
//
// gather(), scatter() and find_exponents() accept only memory that locate() reports as kDevice: GPU or
// managed memory. Host memory is excluded, pinned or pageable. A copy within host memory blocks the calling
// thread until its stream reaches the copy, and few machines let kernels access pageable memory. The pipeline
// reduces host memory in place or refuses it.
[[nodiscard]] Result<std::unique_ptr<pipeline::Device>> open_cuda_device(int ordinal);

}  // namespace sluice::cuda
