// The kernels of gpu_client/cuda/kernels.cu, compiled as C++.
#pragma once

#include <string_view>

#include "gpu_client/cuda/kernels.h"

namespace sluice::cuda_stand_in {

using Kernel = void (*)(cuda::Launch launch);
// Returns null for an unknown name.
[[nodiscard]] Kernel find_kernel(std::string_view name);

// Runs the kernel on the calling thread: the blocks in order, and in each block the threads in order.
void run(Kernel kernel, unsigned int blocks, unsigned int threads, const cuda::Launch& launch);

}  // namespace sluice::cuda_stand_in
