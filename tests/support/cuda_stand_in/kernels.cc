#include "tests/support/cuda_stand_in/kernels.h"

// Replaces the keywords and built-ins of nvcc. kernels.cu explains why the threads of a block may run one
// after the other.
// NOLINTBEGIN(clang-diagnostic-reserved-macro-identifier,readability-identifier-naming): names of nvcc
#define __global__
#define __device__
#define __shared__ static thread_local
#define __launch_bounds__(threads)
#define __syncthreads() static_cast<void>(0)
// NOLINTEND(clang-diagnostic-reserved-macro-identifier,readability-identifier-naming)

namespace {

struct Index {
  unsigned int x = 0;
};
// NOLINTBEGIN(readability-identifier-naming): as above
thread_local Index threadIdx, blockIdx, blockDim, gridDim;

unsigned long long atomicCAS(unsigned long long* word, unsigned long long expected,
                             unsigned long long desired) {
  (void)__atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
// NOLINTEND(readability-identifier-naming)

}  // namespace

#include "gpu_client/cuda/kernels.cu"

namespace sluice::cuda_stand_in {

Kernel find_kernel(std::string_view name) {
  if (name == "gather_cast") return gather_cast;
  if (name == "scatter_cast") return scatter_cast;
  if (name == "gather_bytes") return gather_bytes;
  if (name == "scatter_bytes") return scatter_bytes;
  if (name == "gather_blocks") return gather_blocks;
  if (name == "scatter_blocks") return scatter_blocks;
  if (name == "find_exponents") return find_exponents;
  return nullptr;
}

void run(Kernel kernel, unsigned int blocks, unsigned int threads, const cuda::Launch& launch) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel(launch);
  }
}

}  // namespace sluice::cuda_stand_in
