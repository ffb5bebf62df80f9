// gpu_client/cuda/kernels.cu, compiled as C++.
#pragma once

#include <string_view>

#include "gpu_client/cuda/kernels.h"

namespace sluice::cuda_stand_in {

using Kernel = void (*)(cuda::Launch launch);
// Null where there is none such.
[[nodiscard]] Kernel find_kernel(std::string_view name);

// On this thread: one block after the other, and in it one thread after the other.
void run(Kernel kernel, unsigned int blocks, unsigned int threads, const cuda::Launch& launch);

}  // namespace sluice::cuda_stand_in
