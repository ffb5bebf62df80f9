// The CUDA driver, loaded when it is first asked for: nothing is linked with it, so a machine without it does
// without GPUs. No CUDA runtime: a process may have another one, or none.
#pragma once

#include <cuda.h>

#include <string>

#include "core/result.h"

namespace sluice::cuda {

// Types are those of cuda.h's newest names; the symbols are those that the driver exports for them.
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
  // Written out: headers have given the plain name to another version of it.
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

// kUnsupported with what is missing. Never unloaded: a driver has threads.
[[nodiscard]] Result<Driver> load_driver(const char* library);

// libcuda.so.1, or what SLUICE_CUDA_DRIVER names; once it is loaded, always that one. Any thread.
[[nodiscard]] Result<const Driver*> driver();

// "CUDA_ERROR_OUT_OF_MEMORY: out of memory".
[[nodiscard]] std::string describe(const Driver& driver, CUresult result);

}  // namespace sluice::cuda
