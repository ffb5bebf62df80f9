// Struct Driver is the table of the CUDA driver API functions that this library uses. The driver is loaded on
// first use and not linked, so the library also works on machines without a GPU. The CUDA runtime is not
// used: the process may have its own version of it.
#pragma once

#include <cuda.h>

#include <string>

#include "core/result.h"

namespace sluice::cuda {

// The types are those of the names in cuda.h; load_driver() maps each name to the symbol that the driver
// exports.
struct Driver {
  decltype(&cuInit) init;
  decltype(&cuDriverGetVersion) driver_get_version;
  decltype(&cuGetErrorName) get_error_name;
  decltype(&cuGetErrorString) get_error_string;
  decltype(&cuDeviceGetCount) device_get_count;
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDeviceGetAttribute) device_get_attribute;
  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain;
  decltype(&cuDevicePrimaryCtxRelease) device_primary_ctx_release;
  decltype(&cuCtxPushCurrent) ctx_push_current;
  decltype(&cuCtxPopCurrent) ctx_pop_current;
  // Declared by hand: newer headers map the plain name to another version of the function.
  CUresult(CUDAAPI* ctx_get_device)(CUdevice* device);
  decltype(&cuThreadExchangeStreamCaptureMode) thread_exchange_stream_capture_mode;
  decltype(&cuMemHostAlloc) mem_host_alloc;
  decltype(&cuMemFreeHost) mem_free_host;
  decltype(&cuMemAlloc) mem_alloc;
  decltype(&cuMemFree) mem_free;
  decltype(&cuMemsetD8Async) memset_d8_async;
  decltype(&cuMemcpyDtoHAsync) memcpy_dtoh_async;
  decltype(&cuMemcpyHtoDAsync) memcpy_htod_async;
  decltype(&cuPointerGetAttributes) pointer_get_attributes;
  decltype(&cuStreamCreate) stream_create;
  decltype(&cuStreamDestroy) stream_destroy;
  decltype(&cuStreamSynchronize) stream_synchronize;
  CUresult(CUDAAPI* stream_get_ctx)(CUstream stream, CUcontext* context);
  decltype(&cuStreamIsCapturing) stream_is_capturing;
  decltype(&cuStreamWaitEvent) stream_wait_event;
  decltype(&cuStreamWaitValue32) stream_wait_value32;
  decltype(&cuEventCreate) event_create;
  decltype(&cuEventDestroy) event_destroy;
  decltype(&cuEventRecord) event_record;
  decltype(&cuEventQuery) event_query;
  decltype(&cuEventSynchronize) event_synchronize;
  decltype(&cuModuleLoadData) module_load_data;
  decltype(&cuModuleUnload) module_unload;
  decltype(&cuModuleGetFunction) module_get_function;
  decltype(&cuLaunchKernel) launch_kernel;
};

// Returns kUnsupported with the name of what is missing. A loaded driver is never unloaded, because it has
// threads.
[[nodiscard]] Result<Driver> load_driver(const char* library);

// Loads libcuda.so.1, or the library that SLUICE_CUDA_DRIVER names, and returns its table. Later calls return
// the same table; a failed load is tried again. Any thread.
[[nodiscard]] Result<const Driver*> driver();

// Returns for example "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
[[nodiscard]] std::string describe(const Driver& driver, CUresult result);

}  // namespace sluice::cuda
