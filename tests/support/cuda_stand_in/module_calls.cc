#include <utility>

#include "tests/support/cuda_stand_in/driver_state.h"
#include "tests/support/cuda_stand_in/kernels.h"

using namespace sluice::cuda_stand_in;  // NOLINT(google-build-using-namespace): the driver's functions have
                                        // no namespace

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  if (const CUresult r = enter_unsafe("cuModuleLoadData"); r != CUDA_SUCCESS) return r;
  // The magic number of a fat binary.
  if (*static_cast<const uint32_t*>(image) != 0xba55ed50) return CUDA_ERROR_INVALID_IMAGE;
  auto created = std::make_unique<Module>();
  created->context = current();
  *module = as<CUmod_st>(created.get());
  const Lock lock(driver_state().mutex);
  driver_state().modules[created.get()] = std::move(created);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  const CUresult r = enter_unsafe("cuModuleUnload");
  const Lock lock(driver_state().mutex);
  return driver_state().modules.erase(as<Module>(module)) == 1 ? r : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule /*module*/, const char* name) {
  if (const CUresult r = enter("cuModuleGetFunction"); r != CUDA_SUCCESS) return r;
  const Kernel kernel = find_kernel(name);
  *function = reinterpret_cast<CUfunction>(kernel);
  return kernel != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int blocks_y,
                                unsigned int blocks_z, unsigned int threads, unsigned int threads_y,
                                unsigned int threads_z, unsigned int /*shared*/, CUstream stream,
                                void** values, void** /*extra*/) {
  if (const CUresult r = enter("cuLaunchKernel"); r != CUDA_SUCCESS) return r;
  if (blocks == 0 || threads == 0 || threads > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1)
    return CUDA_ERROR_INVALID_VALUE;
  auto launch = std::make_shared<const sluice::cuda::Launch>(*static_cast<sluice::cuda::Launch*>(values[0]));
  return enqueue(stream, [kernel = reinterpret_cast<Kernel>(function), blocks, threads, launch] {
    {
      const Lock lock(driver_state().mutex);
      if (const CUresult fault = std::exchange(driver_state().kernel_fault, CUDA_SUCCESS);
          fault != CUDA_SUCCESS)
        return fault;
    }
    run(kernel, blocks, threads, *launch);
    return CUDA_SUCCESS;
  });
}
