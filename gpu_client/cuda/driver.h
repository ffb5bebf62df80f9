// Struct Driver is the table of the CUDA driver API functions that this library uses. The driver is loaded on
// first use and not linked, so the library also works on machines without a GPU. The CUDA runtime is not
// used: the process may have its own version of it.
#pragma once

#include <cuda.h>

#include <string>

#include "core/result.h"

namespace sluice::cuda {

// The functions: their names in Driver and in cuda.h, which has the type, and the symbol that the driver
// exports. Not cuStreamWaitValue32 without _v2, which drivers refuse unless a module parameter enables it.
#define SLUICE_CUDA_FUNCTIONS(FUNCTION)                                                           \
  FUNCTION(init, cuInit, "cuInit")                                                                \
  FUNCTION(driver_get_version, cuDriverGetVersion, "cuDriverGetVersion")                          \
  FUNCTION(get_error_name, cuGetErrorName, "cuGetErrorName")                                      \
  FUNCTION(get_error_string, cuGetErrorString, "cuGetErrorString")                                \
  FUNCTION(device_get_count, cuDeviceGetCount, "cuDeviceGetCount")                                \
  FUNCTION(device_get, cuDeviceGet, "cuDeviceGet")                                                \
  FUNCTION(device_get_attribute, cuDeviceGetAttribute, "cuDeviceGetAttribute")                    \
  FUNCTION(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")       \
  FUNCTION(device_primary_ctx_release, cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2") \
  FUNCTION(ctx_push_current, cuCtxPushCurrent, "cuCtxPushCurrent_v2")                             \
  FUNCTION(ctx_pop_current, cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                \
  FUNCTION(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode,                \
           "cuThreadExchangeStreamCaptureMode")                                                   \
  FUNCTION(mem_host_alloc, cuMemHostAlloc, "cuMemHostAlloc")                                      \
  FUNCTION(mem_free_host, cuMemFreeHost, "cuMemFreeHost")                                         \
  FUNCTION(mem_alloc, cuMemAlloc, "cuMemAlloc_v2")                                                \
  FUNCTION(mem_free, cuMemFree, "cuMemFree_v2")                                                   \
  FUNCTION(memset_d8_async, cuMemsetD8Async, "cuMemsetD8Async")                                   \
  FUNCTION(memcpy_dtoh_async, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2")                          \
  FUNCTION(memcpy_htod_async, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                          \
  FUNCTION(pointer_get_attributes, cuPointerGetAttributes, "cuPointerGetAttributes")              \
  FUNCTION(stream_create, cuStreamCreate, "cuStreamCreate")                                       \
  FUNCTION(stream_destroy, cuStreamDestroy, "cuStreamDestroy_v2")                                 \
  FUNCTION(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize")                        \
  FUNCTION(stream_is_capturing, cuStreamIsCapturing, "cuStreamIsCapturing")                       \
  FUNCTION(stream_wait_event, cuStreamWaitEvent, "cuStreamWaitEvent")                             \
  FUNCTION(stream_wait_value32, cuStreamWaitValue32, "cuStreamWaitValue32_v2")                    \
  FUNCTION(event_create, cuEventCreate, "cuEventCreate")                                          \
  FUNCTION(event_destroy, cuEventDestroy, "cuEventDestroy_v2")                                    \
  FUNCTION(event_record, cuEventRecord, "cuEventRecord")                                          \
  FUNCTION(event_query, cuEventQuery, "cuEventQuery")                                             \
  FUNCTION(event_synchronize, cuEventSynchronize, "cuEventSynchronize")                           \
  FUNCTION(module_load_data, cuModuleLoadData, "cuModuleLoadData")                                \
  FUNCTION(module_unload, cuModuleUnload, "cuModuleUnload")                                       \
  FUNCTION(module_get_function, cuModuleGetFunction, "cuModuleGetFunction")                       \
  FUNCTION(launch_kernel, cuLaunchKernel, "cuLaunchKernel")

struct Driver {
  // NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define SLUICE_DECLARE_FUNCTION(name, declaration, symbol) decltype(&declaration) name;
  SLUICE_CUDA_FUNCTIONS(SLUICE_DECLARE_FUNCTION)
#undef SLUICE_DECLARE_FUNCTION
  // Declared by hand: newer headers map the plain names to other versions of the functions.
  CUresult(CUDAAPI* ctx_get_device)(CUdevice* device);
  CUresult(CUDAAPI* stream_get_ctx)(CUstream stream, CUcontext* context);
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
